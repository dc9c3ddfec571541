"""Add 10 by way of shared memory. Each thread loads one element, and writes another one.

The element that it writes was loaded by a thread at the other end of the block, so the block must wait for it.
"""

import numpy as np
from numba import cuda, float32

WIDTH = 8


@cuda.jit
def kernel(a, out):
    tile = cuda.shared.array(WIDTH, float32)
    lane = cuda.threadIdx.x
    first = cuda.blockIdx.x * WIDTH
    if first + lane < a.size:
        tile[lane] = a[first + lane]
    cuda.syncthreads()
    mirror = WIDTH - 1 - lane
    if first + mirror < a.size:
        out[first + mirror] = tile[mirror] + 10


def reference(a):
    return a + 10


GRID, BLOCK = 3, WIDTH
INPUTS = (np.arange(20, dtype=np.float32),)
