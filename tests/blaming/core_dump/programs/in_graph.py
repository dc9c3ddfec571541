import torch

SOURCE = """
extern "C" __global__ void scale(float *data, long long *shift) { data[(long long)threadIdx.x << shift[0]] *= 2.0f; }
"""
scale = torch.cuda._compile_kernel(SOURCE, "scale")
data = torch.ones(64, device="cuda")
shift = torch.zeros(1, dtype=torch.long, device="cuda")
scale((1, 1, 1), (64, 1, 1), [data, shift])
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    before = data + 1
    scale((1, 1, 1), (64, 1, 1), [data, shift])  # the fault
    after = data * 2
for step in range(20):
    shift.fill_(36 if step == 13 else 0)
    graph.replay()
print(after.sum().item())
