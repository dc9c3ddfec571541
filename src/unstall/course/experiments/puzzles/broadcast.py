"""Add a column and a row, so that the result is a matrix. Each thread reads the two elements that meet in its own."""

import numpy as np
from numba import cuda


@cuda.jit
def kernel(column, row, out):
    i, j = cuda.threadIdx.y, cuda.threadIdx.x
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = column[i, 0] + row[0, j]


def reference(column, row):
    return column + row


GRID, BLOCK = 1, (8, 4)
INPUTS = (
    np.arange(3, dtype=np.float32).reshape(3, 1),
    np.arange(7, dtype=np.float32).reshape(1, 7),
)
