"""The adapter to torch on a CUDA or ROCm device, or on the virtual GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.adapters.adapter import SAMPLED, Array, MemoryCounters
from unstall.measuring.adapters.torch_cpu import TorchCpu
from unstall.measuring.adapters.torch_graphs import launched, ops_in_a_row
from unstall.measuring.virtual_gpu import simulator

_CYCLES_PER_NS = 2  # about the fastest clock of any device, so that a spin is long enough


class TorchCuda(TorchCpu):
    """Adapter for torch on a CUDA or ROCm device, or on the virtual GPU. A call of torch returns
    when its work is in the device's queue.
    """

    asynchronous = True

    def __init__(self, index: int | None = None) -> None:
        super().__init__()
        self.cuda: ModuleType = self.torch.cuda
        self.index: int = self.cuda.current_device() if index is None else index
        self.device = self.torch.device("cuda", self.index)
        self.name = f"torch on {self.device}"
        self.is_cuda = self.torch.version.hip is None
        self.virtual = simulator() is not None
        self._properties: Any = self.cuda.get_device_properties(self.index)
        self._pad: Any = None

    @property
    def device_name(self) -> str:
        return str(self._properties.name)

    @property
    def cache_bytes(self) -> int:
        return int(getattr(self._properties, "L2_cache_size", 0))

    def sample(self, array: Array, most: int = SAMPLED) -> NDArray[np.generic]:
        known = simulator()
        if known is not None and known.options.numerics == "skip":
            return np.zeros(0)  # no values are computed
        return super().sample(array, most)

    def synchronize(self) -> None:
        self.cuda.synchronize(self.index)

    def flusher(self) -> Callable[[], None] | None:
        if not self.cache_bytes:
            return None
        if self.virtual:
            return lambda: None  # its cost model has no cache
        buffer = self.torch.empty(2 * self.cache_bytes, dtype=self.torch.uint8, device=self.device)
        return lambda: buffer.zero_()

    def event(self) -> object:
        event = self.cuda.Event(enable_timing=True)
        event.record(self.cuda.current_stream(self.index))  # the program's current device may be another one
        return event

    def between_ns(self, first: Any, last: Any) -> float:
        return float(first.elapsed_time(last)) * 1e6

    def stream(self) -> int | None:
        return None if self.virtual else int(self.cuda.current_stream(self.index).cuda_stream)

    def spin(self, ns: int) -> bool:
        with self.cuda.device(self.index):
            self.cuda._sleep(_CYCLES_PER_NS * ns)
        return True

    def mark(self) -> None:
        if self._pad is None:
            self._pad = self.torch.empty(1, device=self.device)
        self._pad.fill_(1.0)

    def graph(self, run: Callable[[], object]) -> Callable[[], object] | None:
        if self.virtual:
            return None
        graph = self.cuda.CUDAGraph()
        may_be_again = launched(self.torch, self.index, graph, run)
        if may_be_again is False:  # libraries may allocate permanent memory in the first call
            graph = self.cuda.CUDAGraph()
            may_be_again = launched(self.torch, self.index, graph, run)
        again: Callable[[], object] = graph.replay
        return again if may_be_again else None

    def ops_in_a_row(self, run: Callable[[], object]) -> int | None:
        if self.virtual or not self.is_cuda:
            return None
        try:
            graph = self.cuda.CUDAGraph(keep_graph=True)
        except TypeError:  # torch before 2.8
            return None
        if launched(self.torch, self.index, graph, run) is None:
            return None
        try:
            return ops_in_a_row(int(graph.raw_cuda_graph()))
        finally:
            self.synchronize()
            graph.reset()

    def bus_id(self) -> str | None:
        told = [getattr(self._properties, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
        if self.virtual or not self.is_cuda or None in told:
            return None
        return f"{told[0]:08x}:{told[1]:02x}:{told[2]:02x}.0"

    def memory(self) -> MemoryCounters:
        stats = self.cuda.memory_stats(self.index)
        self.cuda.reset_peak_memory_stats(self.index)
        changes = "segment.all.allocated", "segment.all.freed"
        return MemoryCounters(
            in_use=int(stats.get("allocated_bytes.all.current", 0)),
            peak=int(stats.get("allocated_bytes.all.peak", 0)),
            from_driver=sum(int(stats.get(name, 0)) for name in changes),
        )
