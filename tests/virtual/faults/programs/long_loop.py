"""Iteration 3,700 of 10,000 fails; the loop goes on, as nothing in it waits."""

import torch

torch.set_grad_enabled(False)
table = torch.randn(1000, 2, device="cuda")
counts = torch.arange(10_000).remainder(900)
counts[3699] = 1000
counts = counts.to("cuda")
total = torch.zeros(2, device="cuda")
for i in range(10_000):
    row = table.index_select(0, counts[i : i + 1])  # FAULT
    total += row[0]
    if i % 5_000 == 4_999:
        print(total.sum().item())
