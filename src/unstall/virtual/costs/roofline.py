"""The roofline model. It computes the shortest possible time of a call from the GPU's peak FLOP rates, its memory
bandwidth and a minimum time.
"""

from __future__ import annotations

from dataclasses import dataclass

from unstall.virtual.costs.families.family import Work
from unstall.virtual.costs.gpu_file import Peaks

_TENSOR_CORES = ("float16", "bfloat16")
HELD = 0.8
"""The part of the L2 cache that data can fill and still be in the cache at the next call. On an H100, calls that use
64 % of it have the cache's rate, and calls that use 96 % have the memory's rate. With 0.8,
the times of 1,380 calls of an H200 with about as much data, each predicted from the others, are off by 10 % (median);
with 0.5, by 17 %.
"""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Peak rates of a GPU. FLOP rates are for dense matrices."""

    flops_per_ns: float
    """For float32, without tensor cores."""
    half_flops_per_ns: float
    """For float16 and bfloat16, on tensor cores."""
    double_flops_per_ns: float
    bytes_per_ns: float
    l2_bytes: int
    l2_bytes_per_ns: float
    floor_ns: float
    multiprocessors: int

    @property
    def tf32_flops_per_ns(self) -> float:
        """The rate for TF32 on tensor cores. NVIDIA's data sheets of all GPUs with TF32 say half of the rate of half
        precision.
        """
        return self.half_flops_per_ns / 2

    def ns(self, work: Work, dtype: str) -> float:
        """Returns the ns that a call's work takes. `dtype` is one of torch's, or "tf32"."""
        return self.floor_ns + max(self.computing_ns(work.flops, dtype), self.memory_ns(work))

    def computing_ns(self, flops: float, dtype: str) -> float:
        """Returns the ns that `flops` operations take without memory access. `dtype` is one of torch's, or "tf32"."""
        peak = self.flops_per_ns
        if dtype in _TENSOR_CORES:
            peak = self.half_flops_per_ns
        elif dtype == "tf32":
            peak = self.tf32_flops_per_ns
        elif dtype == "float64":
            peak = self.double_flops_per_ns
        return flops / peak

    def memory_ns(self, work: Work) -> float:
        """Returns the ns that it takes to move the bytes of a call, without any computation.

        Data that the L2 cache holds moves at the rate of the cache; see `HELD`. A multiprocessor moves at most its part
        of that rate.
        """
        rate = self.l2_bytes_per_ns if work.moved <= HELD * self.l2_bytes else self.bytes_per_ns
        return work.moved / min(rate, self.l2_bytes_per_ns * work.multiprocessors / self.multiprocessors)


def roofline_of(peaks: Peaks, l2_bytes: int, multiprocessors: int) -> Roofline:
    """Returns the roofline for peak rates, the size of the L2 cache in bytes, and the number of multiprocessors."""
    rates = peaks.float32, peaks.half, peaks.float64, peaks.bytes
    return Roofline(*rates, l2_bytes, peaks.l2_bytes, peaks.floor_ns, multiprocessors)
