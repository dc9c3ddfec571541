"""Add 10 to a matrix that is larger than a block. cuda.grid(2) counts through all blocks."""

import numpy as np
from numba import cuda


@cuda.jit
def kernel(a, out):
    column, row = cuda.grid(2)
    if row < a.shape[0] and column < a.shape[1]:
        out[row, column] = a[row, column] + 10


def reference(a):
    return a + 10


GRID, BLOCK = (2, 3), (8, 4)
INPUTS = (np.arange(120, dtype=np.float32).reshape(10, 12),)
