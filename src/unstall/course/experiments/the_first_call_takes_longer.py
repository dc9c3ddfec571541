"""The first calls of a kind also set things up, so a training takes several steps until its time is that of the rest.

The first tensor on a GPU starts CUDA. The first call of an operator loads its kernels, the first product loads cuBLAS.
"""

import time
import timeit

import torch
from torch import nn

begin = time.perf_counter()
x = torch.randn(10000, 1024, device="cuda")
torch.cuda.synchronize()
print(f"first tensor on the GPU: {(time.perf_counter() - begin) * 1e3:.1f} ms")


def mul_sum():
    return x.mul(x).sum(-1)


def bmm():
    return torch.bmm(x.reshape(-1, 1, 1024), x.reshape(-1, 1024, 1))


# %% `timeit` times each of 100 calls, without a wait for the GPU.
for function in (mul_sum, bmm):
    for time_of in ("first", "second"):
        calls = timeit.repeat(function, number=1, repeat=100)
        if time_of == "first":
            print(f"{function.__name__}, first call: {calls[0] * 1e3:.1f} ms")
        print(f"{function.__name__}, {time_of} 100 calls, mean: {sum(calls) / 100 * 1e6:.1f} us")

# %% A training sets up more: kernels of the backward pass, the optimizer's state, memory for each new shape.
net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 32 * 32, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for number, size in enumerate((32, 32, 32, 32, 32, 48, 48), 1):
    batch = torch.randn(size, 3, 32, 32, device="cuda")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    optimizer.zero_grad()
    net(batch).square().mean().backward()
    optimizer.step()
    torch.cuda.synchronize()
    print(f"training step {number}, {size} images: {(time.perf_counter() - begin) * 1e3:.2f} ms")
