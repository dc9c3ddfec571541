"""Twelve losses are copied to the host without blocking, and added up without waiting."""

import torch

total = 0.0
losses = torch.rand(12, 1024, device="cuda")
for step in range(12):
    loss = losses[step].mean().to("cpu", non_blocking=True)  # race: first
    total += loss.item()  # race: second
torch.cuda.synchronize()
print(total >= 0)
