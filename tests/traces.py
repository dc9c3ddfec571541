"""Traces to order: a small virtual GPU and host that write what `torch.profiler` would have recorded.

    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        with trace.op("aten::mm"):
            trace.launch("gemm", device_us=20)
        with trace.op("aten::item"):
            trace.sync()
    timeline = load(trace.write(path))

Each thread has a clock that its calls move on. Each stream is a FIFO: an op starts `latency_us` after its call
returned, or when the stream, the event it waits for, and its copy engine let it. Arguments are in µs; what is
recorded, in `events` and in the `Call`s that come back, is exact to the ns.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec

from unstall.read import load
from unstall.timeline.columns import Timeline

PROCESS = 400
MAIN, AUTOGRAD = 400, 445
Event = dict[str, Any]
Memory = Literal["Pageable", "Pinned"]


def ns(us: float) -> int:
    return round(us * 1000)


def _us(ns: int) -> msgspec.Raw:
    """A JSON number with three decimals, as the recorder writes it: a float could not hold a large one."""
    return msgspec.Raw(b"%d.%03d" % divmod(ns, 1000))


@dataclass(frozen=True)
class Call:
    """A host call and the device op that it made, if any; all in ns of the trace's clock."""

    start: int
    end: int
    op_start: int = -1
    op_end: int = -1


@dataclass(frozen=True)
class Recorded:
    """A recorded CUDA event: when its stream gets there."""

    number: int
    time: int
    stream: int
    device: int
    correlation: int


@dataclass
class _Thread:
    number: int
    clock: int = 0
    operators: list[int] = field(default_factory=list)  # external ids
    frames: list[int] = field(default_factory=list)  # python ids


class TraceBuilder:
    """See the module's docstring."""

    def __init__(
        self,
        *,
        stacks: bool = True,  # record Python frames
        operators: bool = True,  # record operators
        sync_records: bool = True,  # record `cuda_sync` rows, and in them which event was waited for
        enter_us: float = 1,  # what it takes to enter a frame, an operator or an annotation, and to leave it
        launch_us: float = 5,
        latency_us: float = 2,
        wake_us: float = 0,  # from an event's being reached to the start of what waits for it
        queue: int = 1022,  # ops outstanding on a device when a launch blocks
        devices: Sequence[str] = ("NVIDIA H200",),
        multiprocessors: int | None = None,  # of each device
        unstall: Event | None = None,  # what the file says of a recorder of unstall's own
    ) -> None:
        self.events: list[Event] = []  # as in the file, but for "ts" and "dur": ns
        self.stacks, self.sync_records, self.devices = stacks, sync_records, devices
        self.operators, self.unstall = operators, unstall
        self._size = {} if multiprocessors is None else {"numSms": multiprocessors}
        self._enter, self._launch, self._latency, self._queue = ns(enter_us), ns(launch_us), ns(latency_us), queue
        self._wake = ns(wake_us)
        self._thread = _Thread(MAIN)
        self._threads = {MAIN: self._thread}
        self._free: dict[tuple[int, int], int] = defaultdict(int)  # (device, stream) → when its last op ends
        self._engine: dict[tuple[int, str], int] = defaultdict(int)  # (device, direction) → when it is free
        self._outstanding: dict[int, list[int]] = defaultdict(list)
        self._numbers: dict[str, int] = defaultdict(int)

    # The host.

    @property
    def now(self) -> int:
        """This thread's clock, in ns."""
        return self._thread.clock

    def work(self, us: float) -> None:
        """The host is busy with something that is not recorded."""
        self._thread.clock += ns(us)

    @contextmanager
    def on_thread(self, number: int, *, wait: bool = True) -> Iterator[None]:
        """Go on on another thread, which begins no earlier than now; wait for it, as for autograd's, or do not."""
        caller = self._thread
        self._thread = self._threads.setdefault(number, _Thread(number))
        self._thread.clock = max(self._thread.clock, caller.clock)
        yield
        if wait:
            caller.clock = max(caller.clock, self._thread.clock)
        self._thread = caller

    @contextmanager
    def frame(self, file: str, line: int, function: str) -> Iterator[None]:
        """A Python function's frame; `line` is where it is defined."""
        with self.named_frame(f"{file}({line}): {function}"):
            yield

    @contextmanager
    def named_frame(self, name: str) -> Iterator[None]:
        """A frame by its name in the file: "<built-in function print>"."""
        if not self.stacks:
            yield
            return
        start, number = self.now, self._number("python")
        frames = self._thread.frames
        args = {"Python id": number, "Python parent id": frames[-1] if frames else None, "Python thread": 1}
        frames.append(number)
        self.work(self._enter / 1000)
        yield
        self.work(self._enter / 1000)
        frames.pop()
        self._host("python_function", name, start, args)

    @contextmanager
    def op(
        self, name: str, *, sequence: int | None = None, shapes: object = None, more: Event | None = None
    ) -> Iterator[None]:
        """An operator; `more` are further fields of its `args`."""
        args: Event = {"External id": self._number("external")} | (more or {})
        if sequence is not None:
            args |= {"Sequence number": sequence, "Fwd thread id": 0}
        if shapes is not None:
            args["Input Dims"] = shapes
        with self._operator(name, args):
            yield

    @contextmanager
    def backward(self, node: str, sequence: int, *, thread: int = AUTOGRAD) -> Iterator[None]:
        """An autograd node evaluated on a thread of its own while the caller waits."""
        args = {"Sequence number": sequence, "Fwd thread id": 1}
        with ExitStack() as stack:
            stack.enter_context(self.on_thread(thread))
            for name in (f"autograd::engine::evaluate_function: {node}", node):
                stack.enter_context(self._operator(name, args | {"External id": self._number("external")}))
            yield

    @contextmanager
    def annotation(self, name: str) -> Iterator[None]:
        """`record_function`: it begins inside the frame of its `__enter__` and ends inside that of its `__exit__`."""
        with self.frame("torch/autograd/profiler.py", 850, "__enter__"):
            start = self.now
            self.work(self._enter / 1000)
        yield
        with self.frame("torch/autograd/profiler.py", 860, "__exit__"):
            self._host("user_annotation", name, start, {"External id": self._number("external")})

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step of the profiler's schedule."""
        with self.annotation(f"ProfilerStep#{self._number('step') - 1}"):
            yield

    @contextmanager
    def optimizer(self, name: str = "SGD") -> Iterator[None]:
        """`optimizer.step()`."""
        with self.frame("torch/optim/sgd.py", 100, "step"), self.annotation(f"Optimizer.step#{name}.step"):
            yield

    def next_batch(self, us: float, *, loader: str = "_MultiProcessingDataLoaderIter") -> None:
        """Wait for the next batch of a DataLoader."""
        with (
            self.frame("torch/utils/data/dataloader.py", 700, "__next__"),
            self.annotation(f"enumerate(DataLoader)#{loader}.__next__"),
        ):
            self.work(us)

    def overhead(self, name: str, us: float) -> None:
        """The recorder at work, on this thread's time but on no thread of the file."""
        start = self.now
        self.work(us)
        self._event("overhead", name, start, self.now, -1, 0, {})

    def call(self, name: str, us: float, *, category: str = "cuda_runtime") -> Call:
        """An API call that puts nothing on the device: cudaMalloc, cuModuleLoadData, cudaGetDevice."""
        return self._call(name, self.now + ns(us), category=category)

    # The device.

    def launch(
        self,
        kernel: str = "kernel",
        device_us: float = 10,
        *,
        stream: int = 7,
        device: int = 0,
        host_us: float | None = None,
        call: str = "cudaLaunchKernel",
        category: str = "cuda_runtime",
        grid: Sequence[int] | None = None,
        share: int | None = None,  # thousandths of the device
    ) -> Call:
        """One kernel; the call blocks while the launch queue is full."""
        start = self.now
        self._make_room(device)
        self.work(self._launch / 1000 if host_us is None else host_us)
        begin, end = self._run(device, stream, ns(device_us))
        correlation = self._number("correlation")
        self._host(category, call, start, self._linked(correlation))
        shape = {} if grid is None else {"grid": list(grid)}
        used = {} if share is None else {"device share": share}
        self._device("kernel", kernel, begin, end, device, stream, correlation, **shape, **used)
        return Call(start, self.now, begin, end)

    def memset(self, device_us: float = 1, *, stream: int = 7, device: int = 0) -> Call:
        start = self.now
        self.work(self._launch / 1000)
        begin, end = self._run(device, stream, ns(device_us))
        correlation = self._number("correlation")
        self._host("cuda_runtime", "cudaMemsetAsync", start, self._linked(correlation))
        self._device("gpu_memset", "Memset (Device)", begin, end, device, stream, correlation, bytes=4)
        return Call(start, self.now, begin, end)

    def graph(self, kernels_us: Sequence[float], *, gap_us: float = 1, stream: int = 7, device: int = 0) -> Call:
        """One call that launches many kernels, one after the other with the graph's own short gaps."""
        start = self.now
        self.work(self._launch / 1000)
        correlation = self._number("correlation")
        self._host("cuda_runtime", "cudaGraphLaunch", start, self._linked(correlation))
        first = max(self.now + self._latency, self._free[device, stream])
        begin = end = first
        for i, length in enumerate(kernels_us):
            begin = end + (ns(gap_us) if i else 0)
            end = begin + ns(length)
            self._device("kernel", f"graph_kernel_{i}", begin, end, device, stream, correlation)
        self._free[device, stream] = end
        heapq.heappush(self._outstanding[device], end)
        return Call(start, self.now, first, end)

    def copy(
        self,
        direction: Literal["HtoD", "DtoH", "DtoD"],
        device_us: float,
        *,
        memory: Memory = "Pinned",
        size: int = 1_000_000,
        stream: int = 7,
        device: int = 0,
        host_us: float | None = None,
        behind_us: float = 0,  # what the call still does after the copy
    ) -> Call:
        """`cudaMemcpyAsync`: the host is blocked until a pageable copy is done, and never by a pinned one."""
        start = self.now
        self.work(self._launch / 1000 if host_us is None else host_us)
        # Within a device the multiprocessors copy, not an engine.
        begin, end = self._run(device, stream, ns(device_us), engine=direction if "H" in direction else "")
        if memory == "Pageable" and "H" in direction:
            self._thread.clock = max(self.now, end)
        self.work(behind_us)
        correlation = self._number("correlation")
        self._host("cuda_runtime", "cudaMemcpyAsync", start, self._linked(correlation))
        sides = {"H": memory, "D": "Device"}
        name = f"Memcpy {direction} ({sides[direction[0]]} -> {sides[direction[-1]]})"
        self._device("gpu_memcpy", name, begin, end, device, stream, correlation, bytes=size)
        return Call(start, self.now, begin, end)

    def item(self, *, stream: int = 7) -> Call:
        """`.item()` as torch records it: two operators, a small copy to pinned memory and a wait for the stream."""
        with self.op("aten::item"), self.op("aten::_local_scalar_dense"):
            self.copy("DtoH", 1, size=4, stream=stream)
            return self.sync(stream=stream)

    def sync(
        self,
        what: Literal["stream", "device"] = "stream",
        *,
        stream: int = 7,
        device: int = 0,
        call: str | None = None,
    ) -> Call:
        """The host waits until a stream, or a device, has done all that it was given; 1 µs at least."""
        streams = [(device, stream)] if what == "stream" else [key for key in self._free if key[0] == device]
        done = max((self._free[key] for key in streams), default=0)
        if what == "stream":
            return self._wait(call or "cudaStreamSynchronize", "Stream Sync", done, device, stream)
        return self._wait(call or "cudaDeviceSynchronize", "Context Sync", done, device, -1)

    def record(self, *, stream: int = 7, device: int = 0) -> Recorded:
        """Record an event on a stream; 1 µs."""
        correlation = self._number("correlation")
        start = self.now
        self.work(1)
        self._host("cuda_runtime", "cudaEventRecord", start, self._linked(correlation))
        time = max(self._free[device, stream], self.now)
        return Recorded(self._number("event"), time, stream, device, correlation)

    def stream_wait(self, event: Recorded, *, stream: int, device: int = 0) -> Call:
        """A stream waits for an event; the host goes on. 1 µs."""
        start = self.now
        correlation = self._number("correlation")
        self.work(1)
        self._host("cuda_runtime", "cudaStreamWaitEvent", start, self._linked(correlation))
        self._sync_record("Stream Wait Event", start, self.now, device, stream, correlation, event)
        self._free[device, stream] = max(self._free[device, stream], event.time + self._wake)
        return Call(start, self.now)

    def event_sync(self, event: Recorded) -> Call:
        """The host waits for an event."""
        return self._wait("cudaEventSynchronize", "Event Sync", event.time, event.device, event.stream, event)

    def free(self, us: float = 10, *, device: int = 0, call: str = "cudaFree") -> Call:
        """`cudaFree` waits for the whole device."""
        done = max((end for key, end in self._free.items() if key[0] == device), default=0)
        return self._call(call, max(done, self.now) + ns(us))

    # The file.

    def document(self, events: Sequence[Event] | None = None, *, shift_us: int = 0) -> Event:
        """What `export_chrome_trace` writes: these events, or this trace's own, all later by `shift_us`."""
        shift = 1000 * shift_us
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": i, "name": name, **self._size} for i, name in enumerate(self.devices)],
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 0,
            **({} if self.unstall is None else {"unstall": self.unstall}),
            "traceEvents": [
                event | {"ts": _us(event["ts"] + shift), "dur": _us(event["dur"])}
                for event in (self.events if events is None else events)
            ],
        }

    def write(self, path: Path, events: Sequence[Event] | None = None, *, shift_us: int = 0) -> Path:
        path.write_bytes(msgspec.json.encode(self.document(events, shift_us=shift_us)))
        return path

    def timeline(self, events: Sequence[Event] | None = None, *, shift_us: int = 0) -> Timeline:
        """Written to a file, and read back."""
        with TemporaryDirectory() as folder:
            return load(self.write(Path(folder) / "made.json", events, shift_us=shift_us))

    # What the rest is made of.

    def _number(self, of: str) -> int:
        self._numbers[of] += 1
        return self._numbers[of]

    def _linked(self, correlation: int) -> Event:
        operators = self._thread.operators
        return {"correlation": correlation} | ({"External id": operators[-1]} if operators else {})

    def _make_room(self, device: int) -> None:
        """Block while the launch queue is full."""
        queue = self._outstanding[device]
        while queue and queue[0] <= self.now:
            heapq.heappop(queue)
        while len(queue) >= self._queue:
            self._thread.clock = max(self.now, heapq.heappop(queue))

    def _run(self, device: int, stream: int, length: int, *, engine: str = "") -> tuple[int, int]:
        """Put an op on a stream, launched by a call that ends now: (start, end)."""
        begin = max(self.now + self._latency, self._free[device, stream])
        if engine:
            begin = max(begin, self._engine[device, engine])
            self._engine[device, engine] = begin + length
        self._free[device, stream] = begin + length
        heapq.heappush(self._outstanding[device], begin + length)
        return begin, begin + length

    def _wait(self, call: str, kind: str, done: int, device: int, stream: int, event: Recorded | None = None) -> Call:
        start = self.now
        made = self._call(call, max(done, start + 1000))
        correlation = int(self.events[-1]["args"]["correlation"])
        self._sync_record(kind, start, made.end, device, stream, correlation, event)
        return made

    def _sync_record(
        self, kind: str, start: int, end: int, device: int, stream: int, correlation: int, event: Recorded | None
    ) -> None:
        if not self.sync_records:
            return
        args: Event = {"cuda_sync_kind": kind, "stream": stream, "device": device, "correlation": correlation}
        if event:
            args |= {
                "wait_on_stream": event.stream,
                "wait_on_cuda_event_record_corr_id": event.correlation,
                "wait_on_cuda_event_id": event.number,
            }
        self._event("cuda_sync", kind, start, end, device, stream, args)

    def _call(self, name: str, end: int, *, category: str = "cuda_runtime") -> Call:
        start = self.now
        self._thread.clock = end
        self._host(category, name, start, self._linked(self._number("correlation")))
        return Call(start, end)

    @contextmanager
    def _operator(self, name: str, args: Event) -> Iterator[None]:
        if not self.operators:
            yield
            return
        start = self.now
        self._thread.operators.append(args["External id"])
        self.work(self._enter / 1000)
        yield
        self.work(self._enter / 1000)
        self._thread.operators.pop()
        self._host("cpu_op", name, start, args)

    def _host(self, category: str, name: str, start: int, args: Event) -> None:
        """A host event of this thread, from `start` until now."""
        self._event(category, name, start, self.now, PROCESS, self._thread.number, args)

    def _device(
        self, category: str, name: str, start: int, end: int, device: int, stream: int, correlation: int, **args: object
    ) -> None:
        operators = self._thread.operators
        linked = {"External id": operators[-1]} if operators else {}
        where = {"device": device, "stream": stream, "correlation": correlation}
        self._event(category, name, start, end, device, stream, linked | where | args)

    def _event(self, category: str, name: str, start: int, end: int, process: int, thread: int, args: Event) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": process,
                "tid": thread,
                "ts": start,
                "dur": end - start,
                "args": args,
            }
        )


def steps_that_prove(*proving: int, steps: int, called_by: str = "") -> TraceBuilder:
    """Steps of the user's function. Those with these numbers also run it within a proof, on a stream of unstall's. The
    function is called by a method of GraphedFunction, if one is given."""
    trace = TraceBuilder()
    for number in range(steps):
        with trace.step(), trace.frame("train.py", 12, "train"):
            if number in proving:
                with (
                    trace.frame("unstall/fix/graphs/serving.py", 250, "GraphServer._capture"),
                    trace.frame("train.py", 30, "step"),
                    trace.op("aten::mm"),
                ):
                    trace.launch("gemm", 900, stream=20)
                    trace.sync(stream=20)
            calls = trace.frame("unstall/fix/graphs/graphed_function.py", 70, called_by) if called_by else nullcontext()
            with calls, trace.op("aten::mm"):
                trace.launch("gemm", 100)
                trace.sync()
    return trace
