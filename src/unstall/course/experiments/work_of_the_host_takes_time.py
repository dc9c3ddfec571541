"""The same ten products by NumPy, by PyTorch on the CPU, and on the GPU: the host's work takes time too.

On the CPU a call returns when it is done, so a clock needs no wait.
"""

import time

import numpy as np
import torch
from torch.utils import benchmark

SIZE = (1000, 1000)


def numpy_products():
    for _ in range(10):
        a = np.random.normal(size=SIZE)
        np.dot(a, a)


def torch_products(device):
    for _ in range(10):
        a = torch.randn(SIZE, device=device)
        torch.mm(a, a)


def milliseconds(function, *arguments):
    function(*arguments)  # warm-up
    torch.cuda.synchronize()
    begin = time.perf_counter()
    function(*arguments)
    return (time.perf_counter() - begin) * 1e3


print(f"NumPy: {milliseconds(numpy_products):.3f} ms")
print(f"PyTorch on the CPU: {milliseconds(torch_products, 'cpu'):.3f} ms")
print(f"PyTorch on the GPU, until launched: {milliseconds(torch_products, 'cuda'):.3f} ms")

# %% `Timer` on CPU tensors, with one thread.
x = torch.randn(10000, 64)
programs = {"mul_sum": "x.mul(x).sum(-1)", "bmm": "torch.bmm(x.reshape(-1, 1, 64), x.reshape(-1, 64, 1))"}
for name, statement in programs.items():
    timed = benchmark.Timer(statement, globals={"x": x, "torch": torch}).timeit(100)
    print(f"{name} on the CPU, Timer: {timed.mean * 1e6:.1f} us")
