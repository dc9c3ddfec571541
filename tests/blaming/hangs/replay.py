import torch

SOURCE = """
extern "C" __global__ void spin(volatile int *flag) {
    while (!*flag) {}
}
"""
spin = torch.cuda._compile_kernel(SOURCE, "spin")
flag = torch.ones(1, dtype=torch.int32, device="cuda")
data = torch.randn(256, 256, device="cuda")
spin((1, 1, 1), (1, 1, 1), [flag])
(data @ data).sum()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    product = data @ data
    spin((1, 1, 1), (1, 1, 1), [flag])  # the hang
    total = product.sum()
for step in range(50):
    if step == 37:
        print("now", flush=True)
    flag.fill_(step != 37)
    graph.replay()  # the replay
print(total.item())
