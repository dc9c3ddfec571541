import torch
from torch import nn

embedding = nn.Embedding(1024, 32).cuda()
weight = torch.randn(4096, 4096, device="cuda")
for step in range(50):
    index = torch.randint(0, 1024, (64,), device="cuda")
    if step == 37:
        index += 1
        index.clamp_(min=1024)
    hidden = embedding(index)  # the fault
    for _ in range(4):
        weight = weight @ weight / 64
    score = torch.sigmoid(hidden)
    loss = score.sum() + weight.sum()
print(loss.item())
