"""The input of a graph is refilled on a copy stream, in turns with its replays."""

import torch

copies = torch.cuda.Stream()
source = torch.ones(1 << 16).pin_memory()
static = torch.zeros(1 << 16, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = static * 2
for _ in range(3):
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        static.copy_(source, non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    graph.replay()
print(result.sum().item())
