"""A graph that was captured with right ids is replayed with wrong ones."""

import torch

table, ids = torch.randn(5, 4, device="cuda"), torch.zeros(3, dtype=torch.long, device="cuda")
warm_up = table[ids].sum()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    doubled = table * 2
    rows = doubled[ids]  # FAULT
    total = rows.sum()
for last in (2, 4, 5):
    ids.copy_(torch.tensor([0, 1, last]))
    graph.replay()  # REPLAY
final = total + 1
print(final.item())
