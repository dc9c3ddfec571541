"""A model that `unstall.graphed` replays as a CUDA graph."""

import torch
from torch import nn

import unstall

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda().eval()
step = unstall.graphed(model)
with torch.no_grad():
    for number in range(6):
        print(step(torch.full((8, 64), float(number), device="cuda")).sum().item() < 1e9)
