"""A cache is written at a position behind its end."""

import torch

cache = torch.zeros(4, 16, device="cuda")
row = torch.ones(16, device="cuda")
for position in range(3, 6):
    where = torch.tensor([position], device="cuda")
    cache.index_put_((where,), row.unsqueeze(0))  # FAULT
    row = row * 2
torch.cuda.synchronize()
