"""The roofline model. It computes the shortest possible time of a call from the GPU's peak FLOP rates, its memory
bandwidth and a minimum time.
"""

from __future__ import annotations

from dataclasses import dataclass

from unstall.virtual.costs.families.family import Work
from unstall.virtual.costs.gpu_file import Peaks

_TENSOR_CORES = ("float16", "bfloat16")


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

        At most half of the L2 cache's size moves at the rate of the L2 cache. A multiprocessor moves at most its part
        of that rate.
        """
        rate = self.l2_bytes_per_ns if work.moved <= self.l2_bytes * 0.8 else self.bytes_per_ns
        return work.moved / min(rate, self.l2_bytes_per_ns * work.multiprocessors / self.multiprocessors)


def roofline_of(peaks: Peaks, l2_bytes: int, multiprocessors: int) -> Roofline:
    """Returns the roofline for peak rates, the size of the L2 cache in bytes, and the number of multiprocessors."""
    rates = peaks.float32, peaks.half, peaks.float64, peaks.bytes
    return Roofline(*rates, l2_bytes, peaks.l2_bytes, peaks.floor_ns, multiprocessors)
