"""The roofline: the shortest possible time of a call, from a GPU's peak FLOPs, its bandwidth and a minimum."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.virtual.costs.gpu_file import Peaks

_TENSOR_CORES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Roofline:
    """Peak rates of a GPU. FLOPs are dense."""

    flops_per_ns: float
    """For float32, without tensor cores."""
    half_flops_per_ns: float
    """For float16 and bfloat16, on tensor cores."""
    double_flops_per_ns: float
    bytes_per_ns: float
    l2_bytes: int
    l2_bytes_per_ns: float
    floor_ns: float

    def ns(self, flops: float, moved: float, dtype: str) -> float:
        """Returns the ns that `flops` operations on `moved` bytes take. If the bytes are at most half of the L2 cache,
        they move at the cache's rate.
        """
        peak = self.flops_per_ns
        if dtype in _TENSOR_CORES:
            peak = self.half_flops_per_ns
        elif dtype == "float64":
            peak = self.double_flops_per_ns
        rate = self.l2_bytes_per_ns if moved <= self.l2_bytes / 2 else self.bytes_per_ns
        return self.floor_ns + max(flops / peak, moved / rate)


def roofline_of(peaks: Peaks, l2_bytes: int) -> Roofline:
    """Returns the roofline for peak rates and the size of the L2 cache in bytes."""
    return Roofline(peaks.float32, peaks.half, peaks.float64, peaks.bytes, l2_bytes, peaks.l2_bytes, peaks.floor_ns)
