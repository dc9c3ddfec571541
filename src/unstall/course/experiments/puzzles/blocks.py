"""Add 10 to a vector that is longer than a block. The number of the block says where its part begins."""

import numpy as np
from numba import cuda


@cuda.jit
def kernel(a, out):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < a.size:
        out[i] = a[i] + 10


def reference(a):
    return a + 10


GRID, BLOCK = 3, 32
INPUTS = (np.arange(80, dtype=np.float32),)
