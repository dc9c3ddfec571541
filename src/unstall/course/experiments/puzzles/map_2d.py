"""Add 10 to a matrix. A block has threads in two dimensions.

x is the column: it counts the neighbours in a warp, and neighbours in memory are in a row.
"""

import numpy as np
from numba import cuda


@cuda.jit
def kernel(a, out):
    row, column = cuda.threadIdx.y, cuda.threadIdx.x
    if row < a.shape[0] and column < a.shape[1]:
        out[row, column] = a[row, column] + 10


def reference(a):
    return a + 10


GRID, BLOCK = 1, (8, 4)
INPUTS = (np.arange(21, dtype=np.float32).reshape(3, 7),)
