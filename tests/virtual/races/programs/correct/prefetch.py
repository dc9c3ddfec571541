"""Batches come by `unstall.prefetch`, into a training loop."""

import torch
from torch import nn

import unstall

torch.manual_seed(0)
model = nn.Linear(256, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [(torch.randn(64, 256), torch.randint(8, (64,))) for _ in range(8)]
for x, y in unstall.prefetch(batches, depth=2):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item() > 0)
