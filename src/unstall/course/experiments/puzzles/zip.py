"""Add two vectors. Each thread reads one element of each."""

import numpy as np
from numba import cuda


@cuda.jit
def kernel(a, b, out):
    i = cuda.threadIdx.x
    out[i] = a[i] + b[i]


def reference(a, b):
    return a + b


GRID, BLOCK = 1, 8
INPUTS = (
    np.arange(8, dtype=np.float32),
    np.ones(8, np.float32),
)
