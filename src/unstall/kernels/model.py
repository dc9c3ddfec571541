"""A model of a kernel's time on a GPU, by the memory roofline."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.kernels.accesses import Dim
from unstall.kernels.traffic import Traffic
from unstall.virtual.costs.families.family import Work
from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.roofline import roofline_of


@dataclass(frozen=True, slots=True)
class ModelledTime:
    """The least time of one launch by the memory roofline: a model, not a measurement.

    Arithmetic, shared memory, barriers and latencies take no time in it.

    Attributes:
        device: The GPU.
        launch_ns: The host time of the launch call from C++. A launch from Numba takes longer.
        empty_ns: The time of an empty kernel.
        memory_ns: The time to move the memory.
        blocks: The number of blocks.
        multiprocessors: The number of multiprocessors of the GPU.
        used: The share of the multiprocessors that work on average: blocks / (multiprocessors * rounds). In a round,
            each multiprocessor runs one block.
    """

    device: str
    launch_ns: int
    empty_ns: int
    memory_ns: int
    blocks: int
    multiprocessors: int
    used: float

    @property
    def kernel_ns(self) -> int:
        """The time of the kernel on the device."""
        return self.empty_ns + self.memory_ns


def modelled(traffic: Traffic, grid: Dim, gpu: str) -> ModelledTime:
    """Returns the time of a launch on a GPU. Raises UsageError if the GPU is unknown.

    The L2 cache moves each sector as often as warps request it. The device's memory moves each sector only once, and
    none if all sectors fit into half of the cache. The kernel takes as long as the slower of the two, the cache or the
    memory. If only half of the multiprocessors work, both have half of their rate.
    """
    of = gpu_named(gpu)
    device, peaks = of.file.device, of.file.peaks
    roofline = roofline_of(peaks, device.l2_bytes, device.multiprocessors)
    blocks = grid[0] * grid[1] * grid[2]
    rounds = -(-blocks // device.multiprocessors)
    used = blocks / (rounds * device.multiprocessors)
    moving_ns = max(roofline.memory_ns(Work(0.0, traffic.distinct_bytes)), traffic.requested_bytes / peaks.l2_bytes)
    return ModelledTime(
        device.name,
        of.host.launch,
        round(peaks.floor_ns),
        round(moving_ns / used),
        blocks,
        device.multiprocessors,
        used,
    )
