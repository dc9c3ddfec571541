"""Multiply two vectors and add up the products. Half of the threads add the other half's sums, again and again.

Each round reads what the round before wrote, so each round begins with a barrier.
"""

import numpy as np
from numba import cuda, float32

WIDTH = 16


@cuda.jit
def kernel(a, b, out):
    sums = cuda.shared.array(WIDTH, float32)
    lane = cuda.threadIdx.x
    sums[lane] = a[lane] * b[lane] if lane < a.size else 0
    half = WIDTH // 2
    while half:
        cuda.syncthreads()
        if lane < half:
            sums[lane] += sums[lane + half]
        half //= 2
    if lane == 0:
        out[0] = sums[0]


def reference(a, b):
    return np.array([a @ b])


GRID, BLOCK = 1, WIDTH
INPUTS = (
    np.arange(14, dtype=np.float32),
    np.ones(14, np.float32),
)
