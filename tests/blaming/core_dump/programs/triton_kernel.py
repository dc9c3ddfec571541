import torch
import triton
import triton.language as tl


@triton.jit
def scale(data, shift, count, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(data + i, mask=i < count)
    far = i.to(tl.int64) << shift
    tl.store(data + far, value * 2, mask=i < count)  # in the kernel


data = torch.ones(4096, device="cuda")
for step in range(20):
    shift = 0 if step != 13 else 36
    data = data / 2
    scale[(16,)](data, shift, 4096, block=256)  # the fault
    mean = data.mean()
print(mean.item())
