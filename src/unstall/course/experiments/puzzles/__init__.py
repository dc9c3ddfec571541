"""Sasha Rush's fourteen GPU puzzles (https://github.com/srush/GPU-Puzzles), solved in Numba.

Each file has a kernel, its reference in NumPy, and a launch: GRID, BLOCK and INPUTS. A kernel's last argument is the
result.
"""

from unstall.course.experiments.puzzles import (
    axis_sum,
    blocks,
    blocks_2d,
    broadcast,
    convolution,
    dot_product,
    guard,
    map,
    map_2d,
    matrix_multiply,
    pooling,
    prefix_sum,
    shared_memory,
    zip,
)

PUZZLES = (
    *(map, zip, guard, map_2d, broadcast, blocks, blocks_2d),
    *(shared_memory, pooling, dot_product, convolution, prefix_sum, axis_sum, matrix_multiply),
)
