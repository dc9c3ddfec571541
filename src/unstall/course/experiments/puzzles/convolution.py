"""Convolve a vector with a few weights. A block loads its own elements and the first few of the next block.

All threads read all weights, so these are in shared memory too.
"""

import numpy as np
from numba import cuda, float32

WIDTH, TAPS = 8, 4


@cuda.jit
def kernel(a, weights, out):
    tile = cuda.shared.array(WIDTH + TAPS, float32)
    factors = cuda.shared.array(TAPS, float32)
    lane, i = cuda.threadIdx.x, cuda.grid(1)
    tile[lane] = a[i] if i < a.size else 0
    if lane < TAPS:
        tile[WIDTH + lane] = a[i + WIDTH] if i + WIDTH < a.size else 0
        factors[lane] = weights[lane]
    cuda.syncthreads()
    if i < a.size:
        total = float32(0)
        for tap in range(TAPS):
            total += tile[lane + tap] * factors[tap]
        out[i] = total


def reference(a, weights):
    padded = np.concatenate([a, np.zeros(TAPS - 1, a.dtype)])
    return np.correlate(padded, weights)


GRID, BLOCK = 3, WIDTH
INPUTS = (
    np.arange(20, dtype=np.float32),
    np.array([1, 2, 3, 4], np.float32),
)
