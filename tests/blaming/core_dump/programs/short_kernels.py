import torch

SOURCE = """
extern "C" __global__ void scale(float *data, int shift, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[(long long)i << shift] *= 2.0f;
}
"""
scale = torch.cuda._compile_kernel(SOURCE, "scale")
data = torch.ones(4096, device="cuda")
for step in range(4000):
    shift = 0 if step != 3700 else 36
    data = data / 2
    data = data.abs()
    scale((16, 1, 1), (256, 1, 1), [data, shift, 4096])  # the fault
    data = data + 1
    mean = data.mean()
print(mean.item())
