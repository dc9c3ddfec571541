"""Work on a side stream fails, and the main stream is told by a wait for another value."""

import torch

side = torch.cuda.Stream()
table = torch.randn(10, 4, device="cuda")
ids = torch.tensor([2, 10], device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    rows = table.index_select(0, ids)  # FAULT
    rows = rows * 2
other = torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
torch.cuda.current_stream().wait_stream(side)
print(other.sum().item())
