"""Multiply two matrices, tile by tile. A block loads a tile of each once, and its threads read them WIDTH times.

All threads must have loaded before one multiplies, and all must have multiplied before the next tile is loaded.
"""

import numpy as np
from numba import cuda, float32

WIDTH = 4


@cuda.jit
def kernel(a, b, out):
    left = cuda.shared.array((WIDTH, WIDTH), float32)
    right = cuda.shared.array((WIDTH, WIDTH), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = float32(0)
    for first in range(0, a.shape[1], WIDTH):
        left[y, x] = a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else 0
        right[y, x] = b[first + y, column] if first + y < b.shape[0] and column < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(WIDTH):
            total += left[y, k] * right[k, x]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


def reference(a, b):
    return a @ b


GRID, BLOCK = (2, 2), (WIDTH, WIDTH)
INPUTS = (
    np.arange(42, dtype=np.float32).reshape(7, 6),
    np.arange(30, dtype=np.float32).reshape(6, 5),
)
