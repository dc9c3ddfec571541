"""`timeit` twice: the first calls of a kind also set things up.

The first tensor on a GPU starts CUDA. The first call of an operator loads its kernels, the first product loads cuBLAS.
"""

import time
import timeit

import torch

begin = time.perf_counter()
x = torch.randn(10000, 1024, device="cuda")
torch.cuda.synchronize()
print(f"first tensor on the GPU: {(time.perf_counter() - begin) * 1e3:.1f} ms")


def mul_sum():
    return x.mul(x).sum(-1)


def bmm():
    return torch.bmm(x.reshape(-1, 1, 1024), x.reshape(-1, 1024, 1))


# %% `timeit` runs each 100 times, without a wait for the GPU.
for function in (mul_sum, bmm):
    for time_of in ("first", "second"):
        mean = timeit.timeit(function, number=100) / 100
        print(f"{function.__name__}, {time_of} 100 calls, mean: {mean * 1e6:.1f} us")
