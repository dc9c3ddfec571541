"""The interface of the device that `graphed` needs: captures and replays of graphs, the capture stream and further
streams, the random number generator, and timing. The capture stream is the stream on which graphs are captured."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import torch

from unstall.guest.graph_capture import capture, is_sound, nvidia_driver, own_stream

_T = TypeVar("_T")
Pool = tuple[int, int]
"""The id of a memory pool for graphs."""


class ReplayableGraph(Protocol):
    def replay(self) -> None: ...

    def reset(self) -> None: ...


class CaptureLanes(Protocol):
    """The streams (lanes) on which the work of one capture runs. Lane 0 is the stream on which the capture began."""

    def on(self, lane: int) -> AbstractContextManager[object]: ...

    def record_event(self, lane: int) -> Any: ...

    def wait_event(self, lane: int, event: Any) -> None: ...

    def join(self) -> None: ...


class CaptureDevice(Protocol):
    @property
    def type(self) -> str:
        """torch's name for the device type, such as "cuda". A graph can hold only tensors on devices of this type."""

    @property
    def index(self) -> int | None: ...

    @property
    def measures_operators(self) -> bool:
        """Whether timing events that are recorded within a capture can be read after a replay."""

    def capture_stream(self) -> AbstractContextManager[None]:
        """Makes the capture stream (the stream on which graphs are captured) current during the block. The work of the
        block runs after all earlier work of the stream that is current outside of the block, and before all later work
        of that stream."""

    def on_capture_stream(self) -> AbstractContextManager[object]:
        """Makes the capture stream (the stream on which graphs are captured) current during the block. No stream waits
        for another stream, so the block must launch no work."""

    def capture(
        self, pool: Pool, generators: list[torch.Generator], run: Callable[[], _T]
    ) -> tuple[ReplayableGraph, _T, int | None]:
        """Captures the work of `run` as a graph.

        Args:
            pool: The memory pool of the graph.
            generators: The random number generators that `run` may use.
            run: The function to capture.

        Returns:
            `(graph, result, nodes)`: the graph, the result of `run`, and the number of nodes of the graph. The number
            is None if it is unknown.
        """

    def lanes(self, count: int) -> CaptureLanes: ...

    def nodes_captured(self) -> int | None:
        """Returns how many nodes the capture on the current stream has so far, or None if the number is unknown."""

    def is_on_its_stream(self) -> bool:
        """Returns whether the current stream is the stream on which the capture began. It must be called within a
        capture."""

    def timing_event(self) -> Any:
        """Records a timing event on the current stream, within a capture. Returns the event."""

    def seconds_between(self, start: Any, end: Any) -> float:
        """Returns the time in s between two timing events of a graph, in the last replay of this graph."""

    def new_pool(self) -> Pool: ...

    def shared_pool(self) -> Pool:
        """Returns a memory pool for several graphs. A graph's results must be copied before another graph with this
        pool is replayed."""

    def pool_bytes(self, pool: Pool) -> int: ...

    def free_bytes(self) -> int: ...

    def order(self) -> None:
        """Makes the current stream wait for the stream that was current at the last call of `order`. Does nothing if
        the two streams are the same stream."""

    def generator(self) -> torch.Generator: ...

    def synchronize(self) -> None: ...

    def seconds(self, run: Callable[[], object]) -> float:
        """Waits until the device is idle. Then calls `run`, and waits until the device has finished the work of `run`.
        Returns the time in s from the start of `run` to the end of this work."""

    def capturing(self) -> bool:
        """Returns whether the program itself is capturing a CUDA graph on the current stream."""

    def hand_over(self, tensors: list[torch.Tensor]) -> None:
        """Tells the allocator that the current stream uses `tensors`, which were made on the stream on which graphs are
        captured."""


class CudaLanes:
    def __init__(self, root: torch.cuda.Stream, others: list[torch.cuda.Stream]) -> None:
        self._streams = [root, *others]
        for stream in others:
            stream.wait_stream(root)

    def on(self, lane: int) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._streams[lane]) if lane else contextlib.nullcontext()

    def record_event(self, lane: int) -> torch.cuda.Event:
        event: torch.cuda.Event = self._streams[lane].record_event()
        return event

    def wait_event(self, lane: int, event: torch.cuda.Event) -> None:
        self._streams[lane].wait_event(event)

    def join(self) -> None:
        for stream in self._streams[1:]:
            self._streams[0].wait_stream(stream)


class CudaDevice:
    """The `CaptureDevice` of a CUDA or ROCm device: captures and replays graphs by `torch.cuda`."""

    type = "cuda"

    def __init__(self, index: int) -> None:
        self.index = index
        self._stream = own_stream(index)
        self._lanes: list[torch.cuda.Stream] = []
        self._workspaces_pool: Pool | None = None
        self._workspaces: object = None  # a graph that keeps that pool alive
        self._threads = threading.local()
        self._last = torch.cuda.current_stream(index)
        self._last_raw = self._last.cuda_stream
        self._pool: Pool | None = None
        self._anchor: object = None  # a graph that keeps that pool alive

    @property
    def measures_operators(self) -> bool:
        return _nodes_call() is not None and _has_external_events()  # graphs record times only with a real driver

    @contextmanager
    def capture_stream(self) -> Iterator[None]:
        self._take_workspaces()
        current = torch.cuda.current_stream(self.index)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            current.wait_stream(self._stream)

    def on_capture_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream)

    def capture(
        self, pool: Pool, generators: list[torch.Generator], run: Callable[[], _T]
    ) -> tuple[ReplayableGraph, _T, int | None]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.index)
        result, nodes = capture(graph, lambda: (run(), self.nodes_captured()), pool, self._stream, generators)
        return graph, result, nodes

    def _take_workspaces(self) -> None:
        """Allocates cuBLAS workspaces in a separate memory pool, which is never freed.

        torch keeps one workspace for each thread and stream. If the workspaces are cleared (torch.compile does this),
        the allocator may reuse their memory while graphs still write to this memory. A workspace that is allocated
        within a capture lies in the memory pool of the capture. So each thread and stream of unstall first allocates
        its workspace in a separate capture, which does nothing else.

        A thread cannot create its cuBLAS handle within a capture. So the first matrix product of a thread runs outside
        of captures, on the program's stream.
        """
        if nvidia_driver() is None:
            return
        with contextlib.suppress(RuntimeError):  # raised in deterministic mode if no workspace is configured
            differentiates = torch.is_grad_enabled()
            if differentiates not in self._threads.__dict__.setdefault("have_handles", set()):
                self._multiply(differentiates)
                self._threads.have_handles.add(differentiates)
            if self._workspaces_pool is None or not is_sound(self._workspaces_pool):
                self._workspaces_pool = self.new_pool()
            self._workspaces = self.capture(self._workspaces_pool, [], self._multiply_on_lanes)

    def _multiply_on_lanes(self) -> None:
        lanes = CudaLanes(self._stream, self._lanes)
        for lane in range(len(self._lanes) + 1):
            with lanes.on(lane):
                self._multiply(torch.is_grad_enabled())
        lanes.join()

    def _multiply(self, differentiates: bool) -> None:
        """Multiplies matrices in this thread and, if `differentiates`, also in autograd's thread."""
        with (
            torch.inference_mode(False),
            torch.autocast("cuda", enabled=False),
            torch.set_grad_enabled(differentiates),
        ):
            ones = torch.ones(16, 16, device=self._of(), dtype=torch.float32, requires_grad=differentiates)
            product = ones @ ones
            if differentiates:
                torch.autograd.grad(product.sum(), ones)

    def lanes(self, count: int) -> CaptureLanes:
        if len(self._lanes) < count - 1:
            raise RuntimeError("lanes are made before a capture, by warm_lanes")
        return CudaLanes(self._stream, self._lanes[: count - 1])

    def warm_lanes(self, count: int) -> None:
        """Creates the streams that a capture on `count` streams needs (`lanes(count)`). It must be called outside of
        captures."""
        if len(self._lanes) < count - 1:
            self._lanes += [own_stream(self.index) for _ in range(count - 1 - len(self._lanes))]
            self._take_workspaces()

    def _of(self) -> torch.device:
        return torch.device("cuda", self.index)

    def nodes_captured(self) -> int | None:
        call = _nodes_call()
        return call(self._stream.cuda_stream) if call is not None else None

    def is_on_its_stream(self) -> bool:
        return bool(torch._C._cuda_getCurrentRawStream(self.index) == self._stream.cuda_stream)

    def timing_event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True, external=True)
        event.record()
        return event

    def seconds_between(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def new_pool(self) -> Pool:
        return torch.cuda.graph_pool_handle()

    def shared_pool(self) -> Pool:
        if self._pool is None or not is_sound(self._pool):
            pool = self.new_pool()
            # The allocator frees a pool that no graph uses, and such a pool cannot be used again.
            self._anchor = self.capture(pool, [], lambda: torch.zeros(1, device=self._of()))
            self._pool = pool
        return self._pool

    def pool_bytes(self, pool: Pool) -> int:
        segments = torch.cuda.memory_snapshot()
        return sum(
            int(each["total_size"]) for each in segments if tuple(each.get("segment_pool_id", ())) == tuple(pool)
        )

    def free_bytes(self) -> int:
        free, _ = torch.cuda.mem_get_info(self.index)
        unused = torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index)
        return int(free + max(0, unused))

    def order(self) -> None:
        raw = torch._C._cuda_getCurrentRawStream(self.index)  # takes a tenth of the time of current_stream()
        if raw != self._last_raw:
            current = torch.cuda.current_stream(self.index)
            current.wait_stream(self._last)
            self._last, self._last_raw = current, raw

    def generator(self) -> torch.Generator:
        return torch.cuda.default_generators[self.index]

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.index)

    def seconds(self, run: Callable[[], object]) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self.index)
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def capturing(self) -> bool:
        return bool(torch._C._cuda_isCurrentStreamCapturing())

    def hand_over(self, tensors: list[torch.Tensor]) -> None:
        current = torch.cuda.current_stream(self.index)
        for tensor in tensors:
            if tensor.device.type == "cuda":
                tensor.record_stream(current)


@lru_cache(maxsize=1)
def _nodes_call() -> Callable[[int], int | None] | None:
    """Returns a function that takes a stream's handle, and returns how many nodes the capture on this stream has.
    Returns None if the driver cannot report the number."""
    driver = nvidia_driver()
    try:
        info, nodes_of = driver.cuStreamGetCaptureInfo_v2, driver.cuGraphGetNodes
    except AttributeError:
        return None

    def nodes(stream: int) -> int | None:
        status, graph, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
        failed = info(ctypes.c_void_p(stream), ctypes.byref(status), None, ctypes.byref(graph), None, None)
        if failed or status.value != 1 or nodes_of(graph, None, ctypes.byref(count)):
            return None
        return int(count.value)

    return nodes


@lru_cache(maxsize=1)
def _has_external_events() -> bool:
    try:
        torch.cuda.Event(enable_timing=True, external=True)
    except TypeError:
        return False
    return True


_devices: dict[int, CudaDevice] = {}


def device_for(tensors: list[torch.Tensor]) -> CudaDevice | None:
    """Returns the device of the CUDA tensors among `tensors`. If the CUDA tensors are on several devices, or if there
    are no CUDA tensors, returns the current device. Returns None if torch has no CUDA device."""
    if not torch.cuda.is_available():
        return None
    indices = {tensor.device.index for tensor in tensors if tensor.device.type == "cuda"}
    index = indices.pop() if len(indices) == 1 else torch.cuda.current_device()
    if index not in _devices:
        _devices[index] = CudaDevice(index)
    return _devices[index]
