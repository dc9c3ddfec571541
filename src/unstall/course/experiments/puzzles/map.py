"""Add 10 to each element of a vector. Each thread has one element, so the loop over elements is gone."""

import numpy as np
from numba import cuda


@cuda.jit
def kernel(a, out):
    i = cuda.threadIdx.x
    out[i] = a[i] + 10


def reference(a):
    return a + 10


GRID, BLOCK = 1, 8
INPUTS = (np.arange(8, dtype=np.float32),)
