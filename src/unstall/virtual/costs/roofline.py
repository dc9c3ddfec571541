"""The roofline: the least time that a call can take on a GPU, from its peak rates of arithmetic,
its memory bandwidth, and the time of an empty kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from unstall.virtual.costs.families.family import Work
from unstall.virtual.costs.gpu_file import Peaks

_TENSOR_CORES = ("float16", "bfloat16")
_OF_COMPLEX = 4
"""How many products of real numbers a product of complex numbers takes."""
_OF_DATA_SHEET = 1.15
"""The rate of a memory in the data sheet, over the rate that copies reach: 4,800 over 4,202 GB/s on an H200."""
HELD = 0.8
"""How much of the L2 cache data can take and still be there at the next call, as a share of its
size. On an H100, calls that use 64 % of it have the rate of the cache, and calls that use 96 % have
that of the memory. 1,380 calls of an H200 use about as much of the cache. Each was predicted from
the others: with 0.8, their times are off by 10 % (median); with 0.5, by 17 %.
"""


@dataclass(frozen=True, slots=True)
class Roofline:
    """The peak rates of a GPU, for dense matrices, and what else limits the time of a call.

    Attributes:
        flops_per_ns: FLOPs per ns in float32, without tensor cores.
        half_flops_per_ns: FLOPs per ns in float16 and bfloat16, on tensor cores.
        double_flops_per_ns: FLOPs per ns in float64.
        bytes_per_ns: Bytes per ns of the device memory.
        l2_bytes: The size of the L2 cache.
        l2_bytes_per_ns: Bytes per ns of the L2 cache.
        floor_ns: How long an empty kernel takes.
        multiprocessors: The number of multiprocessors.
    """

    flops_per_ns: float
    half_flops_per_ns: float
    double_flops_per_ns: float
    bytes_per_ns: float
    l2_bytes: int
    l2_bytes_per_ns: float
    floor_ns: float
    multiprocessors: int

    @property
    def tf32_flops_per_ns(self) -> float:
        """FLOPs per ns in TF32, on tensor cores: half of those in float16, as in NVIDIA's data
        sheets of all GPUs with TF32.
        """
        return self.half_flops_per_ns / 2

    def ns(self, work: Work, dtype: str) -> float:
        """Returns the least time of a call in ns.

        Args:
            work: The work of the call.
            dtype: Its data type: one of torch's, or "tf32".
        """
        return self.floor_ns + max(self.computing_ns(work.flops, dtype), self.memory_ns(work))

    def computing_ns(self, flops: float, dtype: str) -> float:
        """Returns how long `flops` operations take at least, in ns, if no memory is moved. `dtype`
        is one of torch's data types, or "tf32". Tensor cores compute twice as many in int8 as in float16.
        """
        peak = self.flops_per_ns
        if dtype in _TENSOR_CORES:
            peak = self.half_flops_per_ns
        elif dtype == "tf32":
            peak = self.tf32_flops_per_ns
        elif dtype in ("float64", "complex128"):
            peak = self.double_flops_per_ns
        elif dtype == "int8":
            peak = 2 * self.half_flops_per_ns
        return flops * (_OF_COMPLEX if dtype.startswith("complex") else 1) / peak

    def memory_ns(self, work: Work) -> float:
        """Returns how long it takes at least to move the bytes of a call, in ns, if nothing is
        computed.

        Bytes that fit into the L2 cache (see `HELD`) move at the rate of the cache. Each
        multiprocessor moves at most its part of that rate.
        """
        return self._moving_ns(work, self.l2_bytes_per_ns if self.holds(work) else self.bytes_per_ns)

    def moved(self, work: Work) -> float:
        """Returns how many bytes a call moves, with those of whole sectors if the L2 cache does not hold its table."""
        return work.moved + (work.scattered if work.table > HELD * self.l2_bytes else 0.0)

    def holds(self, work: Work) -> bool:
        """Returns whether the bytes of a call fit into the L2 cache (see `HELD`)."""
        return self.moved(work) <= HELD * self.l2_bytes

    def uncached_ns(self, work: Work, dtype: str) -> float:
        """Returns the least time of a call in ns if the L2 cache helped none. The arguments are those of `ns`."""
        return self.floor_ns + max(self.computing_ns(work.flops, dtype), self._moving_ns(work, self.bytes_per_ns))

    def fastest_ns(self, work: Work) -> float:
        """Returns a time in ns that no call takes less than: what the L2 cache cannot hold of its bytes comes from the
        memory, at no more than its rate in the data sheet.
        """
        return (work.moved - self.l2_bytes) / (_OF_DATA_SHEET * self.bytes_per_ns)

    def _moving_ns(self, work: Work, rate: float) -> float:
        return self.moved(work) / min(rate, self.l2_bytes_per_ns * work.multiprocessors / self.multiprocessors)


def roofline_of(peaks: Peaks, l2_bytes: int, multiprocessors: int) -> Roofline:
    """Returns the roofline of a GPU, from its peak rates, the size of its L2 cache in bytes, and
    the number of its multiprocessors.
    """
    rates = peaks.float32, peaks.half, peaks.float64, peaks.bytes
    return Roofline(*rates, l2_bytes, peaks.l2_bytes, peaks.floor_ns, multiprocessors)
