import torch

SOURCE = """
extern "C" __global__ void scale(float *data, int shift, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[(long long)i << shift] *= 2.0f;
}
"""
scale = torch.cuda._compile_kernel(SOURCE, "scale")
data = torch.ones(4096, device="cuda")
ballast = torch.randn(4096, 4096, device="cuda")
for step in range(20):
    shift = 0 if step != 13 else 36
    for _ in range(3):
        ballast = ballast @ ballast / 64
    scale((16, 1, 1), (256, 1, 1), [data, shift, 4096])  # the fault
    data = data / 2
    mean = data.mean()
print(mean.item())
