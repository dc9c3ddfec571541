import torch

SOURCE = """
extern "C" __global__ void spin(volatile int *flag) {
    while (!*flag) {}
}
"""
spin = torch.cuda._compile_kernel(SOURCE, "spin")
flag = torch.ones(1, dtype=torch.int32, device="cuda")
data = torch.randn(1024, 1024, device="cuda")
for step in range(50):
    data = torch.nn.functional.normalize(data @ data)
    if step == 37:
        print("now", flush=True)
    flag.fill_(step != 37)
    spin((1, 1, 1), (1, 1, 1), [flag])  # the hang
    data = data * 2
print(data.sum().item())
