import cupy
import torch

SOURCE = """extern "C" __global__ void scale(float *data, int shift, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[(long long)i << shift] *= 2.0f;
}"""
scale = cupy.RawKernel(SOURCE, "scale", options=("-lineinfo",))
data = torch.ones(4096, device="cuda")
shared = cupy.from_dlpack(data)
for step in range(20):
    shift = 0 if step != 13 else 36
    data /= 2
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        scale((16,), (256,), (shared, cupy.int32(shift), cupy.int32(4096)))  # the fault
    mean = data.mean()
print(mean.item())
