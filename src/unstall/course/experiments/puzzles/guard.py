"""Add 10 with more threads than elements. Threads without an element must touch no memory."""

import numpy as np
from numba import cuda


@cuda.jit
def kernel(a, out):
    i = cuda.threadIdx.x
    if i < a.size:
        out[i] = a[i] + 10


def reference(a):
    return a + 10


GRID, BLOCK = 1, 32
INPUTS = (np.arange(20, dtype=np.float32),)
