"""Sum each element of a block and all before it. In each round, a thread adds the sum that ends `step` before its own.

All threads must have read before one of them writes, and all must have written before the next round reads.
"""

import numpy as np
from numba import cuda, float32

WIDTH = 8


@cuda.jit
def kernel(a, out):
    sums = cuda.shared.array(WIDTH, float32)
    lane, i = cuda.threadIdx.x, cuda.grid(1)
    sums[lane] = a[i] if i < a.size else 0
    step = 1
    while step < WIDTH:
        cuda.syncthreads()
        before = sums[lane - step] if lane >= step else float32(0)
        cuda.syncthreads()
        sums[lane] += before
        step *= 2
    if i < a.size:
        out[i] = sums[lane]


def reference(a):
    return np.concatenate([np.cumsum(a[first : first + WIDTH]) for first in range(0, a.size, WIDTH)])


GRID, BLOCK = 3, WIDTH
INPUTS = (np.arange(20, dtype=np.float32),)
