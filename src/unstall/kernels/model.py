"""A model of the time that a kernel takes on a GPU. The time is the least that the kernel's memory traffic can take
(the memory roofline)."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.kernels.accesses import Dim
from unstall.kernels.traffic import Traffic
from unstall.virtual.costs.families.family import Work
from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.roofline import roofline_of


@dataclass(frozen=True, slots=True)
class ModelledTime:
    """The time of one kernel launch on a GPU, by a model. The time is not measured.

    The model counts the time of an empty kernel and the time to move the kernel's data. In the model, arithmetic,
    shared memory, barriers and latencies take no time.

    Attributes:
        device: The name of the GPU.
        launch_ns: The host time of a launch call from C++, in ns. A launch from Numba takes longer.
        empty_ns: The device time of an empty kernel, in ns.
        memory_ns: The device time to move the kernel's data between multiprocessors, L2 cache and device memory, in ns.
        blocks: The number of blocks of the launch.
        multiprocessors: The number of multiprocessors of the GPU.
        used: The share of the multiprocessors that work on average: blocks / (multiprocessors * rounds). In each round,
            a multiprocessor runs at most one block.
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
        """The time of the kernel on the device, in ns: the sum of `empty_ns` and `memory_ns`."""
        return self.empty_ns + self.memory_ns


def modelled(traffic: Traffic, grid: Dim, gpu: str) -> ModelledTime:
    """Returns the modelled time of a kernel launch on a GPU.

    The L2 cache moves a sector (32 bytes) each time a warp requests the sector. The device's memory moves each sector
    only once. It moves no sectors if all sectors of the launch fit into half of the L2 cache. The time of the kernel is
    the time of the L2 cache or of the device's memory, whichever takes longer. If only half of the multiprocessors
    work, the L2 cache and the device's memory work at half of their rates.

    Args:
        traffic: The memory traffic of the launch.
        grid: The number of blocks, as (x, y, z).
        gpu: The name of a GPU, or the path of a file that `unstall calibrate` wrote.

    Raises:
        UsageError: The GPU is unknown.
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
