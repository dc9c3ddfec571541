"""Add up each row of a matrix. Each block has a row, and adds as the dot product does."""

import numpy as np
from numba import cuda, float32

WIDTH = 8


@cuda.jit
def kernel(a, out):
    sums = cuda.shared.array(WIDTH, float32)
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x
    sums[lane] = a[row, lane] if lane < a.shape[1] else 0
    half = WIDTH // 2
    while half:
        cuda.syncthreads()
        if lane < half:
            sums[lane] += sums[lane + half]
        half //= 2
    if lane == 0:
        out[row] = sums[0]


def reference(a):
    return a.sum(axis=1)


GRID, BLOCK = 4, WIDTH
INPUTS = (np.arange(24, dtype=np.float32).reshape(4, 6),)
