"""The input of a graph is refilled on a copy stream, while the graph may still read it."""

import torch

copies = torch.cuda.Stream()
source = torch.ones(1 << 16).pin_memory()
static = torch.zeros(1 << 16, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = static * 2  # race: first
torch.cuda.synchronize()
graph.replay()
with torch.cuda.stream(copies):
    static.copy_(source, non_blocking=True)  # race: second
torch.cuda.synchronize()
print(result[0].item() >= 0)
