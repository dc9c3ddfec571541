"""One of two ranks looks up an id that is not there."""

import os

import torch

rank = int(os.environ["LOCAL_RANK"])
table = torch.ones(4, 2, device=f"cuda:{rank}")
rows = table.index_select(0, torch.tensor([3 + rank], device=f"cuda:{rank}"))  # FAULT
print(rows.sum().item())
