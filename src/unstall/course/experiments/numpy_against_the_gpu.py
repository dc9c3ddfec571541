"""Ten random matrices and their products, by NumPy on the CPU and by PyTorch on the GPU.

Large products seem a hundred times faster still if nobody waits for the GPU.
"""

import time

import numpy as np
import torch

from unstall import Stopwatch

SIZE, LARGE = (1000, 1000), (4000, 4000)


def ten_products(size=SIZE):
    for _ in range(10):
        a = torch.randn(size, device="cuda")
        torch.mm(a, a)


for size in (SIZE, LARGE):
    ten_products(size)  # the first use loads cuBLAS
torch.cuda.synchronize()

begin = time.perf_counter()
for _ in range(10):
    a = np.random.normal(size=SIZE)
    np.dot(a, a)
numpy = time.perf_counter() - begin
print(f"NumPy: {numpy * 1e3:.1f} ms")

launched, done = [], []
for _ in range(5):
    begin = time.perf_counter()
    ten_products()
    launched.append(time.perf_counter() - begin)  # the products are not done yet
    torch.cuda.synchronize()
    done.append(time.perf_counter() - begin)
print(f"GPU, until launched: {min(launched) * 1e3:.3f} ms")
print(f"GPU, until done: {min(done) * 1e3:.3f} ms")
print(f"NumPy's time, times the GPU's: {numpy / min(done):.0f} x")

# %% Larger matrices take no more time to launch. A fast GPU is done with small ones as soon as they are launched.
begin = time.perf_counter()
ten_products(LARGE)
print(f"GPU, large, until launched: {(time.perf_counter() - begin) * 1e3:.3f} ms")
torch.cuda.synchronize()
print(f"GPU, large, until done: {(time.perf_counter() - begin) * 1e3:.3f} ms")

# %% `Stopwatch` waits by itself, and says how long. It says so, too, if there was nothing to wait for.
with Stopwatch("ten products") as watch:
    ten_products()
print(f"Stopwatch: {watch.seconds * 1e3:.3f} ms")
print(f"of it, waited for the GPU: {watch.waited_seconds * 1e3:.3f} ms")
with Stopwatch("a product by NumPy") as watch:
    np.dot(a, a)
