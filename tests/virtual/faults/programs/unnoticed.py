"""The program ends before anything waits for the device."""

import torch

table = torch.ones(4, 2, device="cuda")
rows = table.index_select(0, torch.arange(3, 6, device="cuda"))  # FAULT
doubled = rows * 2
print("done")
