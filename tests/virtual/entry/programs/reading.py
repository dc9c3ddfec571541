"""A training loop, and a value that the host reads in each step; with "later", once at the end."""

import sys

import torch

later = "later" in sys.argv
x = torch.randn(1024, 1024, device="cuda")
weight = torch.randn(1024, 1024, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1e-3)
kept, total = [], 0.0
for _ in range(12):
    loss = (x @ weight).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if later:
        kept.append(loss.detach())
    else:
        total += loss.item()
print(torch.stack(kept).sum().item() if later else total)
