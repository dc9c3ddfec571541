"""Fourteen small kernels, from a map to a product of matrices, run without a GPU, and their races are named.

They solve Sasha Rush's GPU puzzles in Numba's CUDA. `unstall.inspect_kernel` follows each access to memory. Its time is
a model: the memory's roofline on an H200.
"""

import numpy as np
from numba import cuda, float32

import unstall
from unstall.course.experiments.puzzles import PUZZLES

reports, solved = {}, 0
for puzzle in PUZZLES:
    expected = puzzle.reference(*puzzle.INPUTS)
    out = np.zeros_like(expected)
    report = unstall.inspect_kernel(puzzle.kernel, puzzle.GRID, puzzle.BLOCK, *puzzle.INPUTS, out, gpu="h200")
    solved += np.array_equal(out, expected)
    name = puzzle.__name__.rpartition(".")[2]
    reports[name] = report
    of_grid, shared = report.traffic.counts
    if name in ("pooling", "matrix_multiply"):  # for example
        print(f"{name}, global reads of a thread: {of_grid.reads.most}")
        print(f"{name}, shared reads of a thread: {shared.reads.most}")
print(f"puzzles: {len(reports)}")
print(f"right values: {solved}")
times = sorted(report.time.kernel_ns for report in reports.values())
print(f"By the model, they take {times[0]} to {times[-1]} ns on an H200.")
print(f"races: {sum(len(report.races) for report in reports.values())}")


# %% Without its barrier, a kernel races, and both lines are named.
@cuda.jit
def reverse(a, out):
    tile = cuda.shared.array(8, float32)
    i = cuda.threadIdx.x
    tile[i] = a[i]
    out[i] = tile[7 - i]  # of another thread


report = unstall.inspect_kernel(reverse, 1, 8, np.arange(8, dtype=np.float32), np.zeros(8, np.float32))
print(report)
print(f"races without the barrier: {len(report.races)}")
