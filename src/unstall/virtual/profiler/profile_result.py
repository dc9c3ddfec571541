"""The result of a profile, in the form in which Kineto gives it to torch.profiler: an object for
each event.

The objects have the methods of Kineto's events. `torch.autograd.profiler` converts them into
FunctionEvents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall.timeline.columns import DeviceKind, HostKind, Timeline
from unstall.virtual.profiler.frames import StackTexts
from unstall.virtual.profiler.trace_file import write_trace

if TYPE_CHECKING:
    from torch._C._autograd import DeviceType

_FUNCTION, _BACKWARD, _USER_SCOPE = 0, 1, 7  # at::RecordScope
_EVALUATES = "autograd::engine::evaluate_function"
_ACTIVITIES = {DeviceKind.KERNEL: "kernel", DeviceKind.COPY: "gpu_memcpy", DeviceKind.MEMSET: "gpu_memset"}
_SHOWN = frozenset({HostKind.OP, HostKind.ANNOTATION})
_CALLS = frozenset(range(HostKind.LAUNCH, HostKind.CALL + 1))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a profile was asked to record.

    Attributes:
        cpu: Whether to record the host's operators and annotations.
        cuda: Whether to record what runs on the device.
        shapes: Whether to record the shapes of operators' inputs.
        memory: Whether to record allocations and frees.
        stacks: Whether to record the call stacks of operators.
        fallback: Whether the device's time is given as a figure of each operator, instead of events
            of the device.
    """

    cpu: bool = True
    cuda: bool = True
    shapes: bool = False
    memory: bool = False
    stacks: bool = False
    fallback: bool = False


def _always(value: object) -> Callable[[object], Any]:
    """Returns a method that returns `value`: what the virtual GPU's profile does not tell."""
    return lambda self: copy(value)


@dataclass(slots=True, eq=False)
class Event:
    """One event of a profile, with the methods of Kineto's events."""

    what: str  # its name
    activity: str
    begins: int  # ns
    ends: int
    thread: int
    id: int
    linked: int = 0  # the id of its operator
    device: DeviceType | None = None
    index: int = 0
    lane: int = 0  # its stream, or its thread
    sequence: int = -1
    forward_thread: int = 0
    of_scope: int = _FUNCTION
    sizes: list[object] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    bytes: int = 0
    device_us: float = -1

    def name(self) -> str:
        return self.what

    def activity_type(self) -> str:
        return self.activity

    def start_ns(self) -> int:
        return self.begins

    def end_ns(self) -> int:
        return self.ends

    def duration_ns(self) -> int:
        return self.ends - self.begins

    def start_thread_id(self) -> int:
        return self.thread

    end_thread_id = start_thread_id

    def fwd_thread_id(self) -> int:
        return self.forward_thread

    def correlation_id(self) -> int:
        return self.id

    def linked_correlation_id(self) -> int:
        return self.linked

    def external_id(self) -> int:
        return self.linked or self.id

    def device_type(self) -> DeviceType | None:
        return self.device

    def device_index(self) -> int:
        return self.index

    def device_resource_id(self) -> int:
        return self.lane

    def sequence_nr(self) -> int:
        return self.sequence

    def scope(self) -> int:
        return self.of_scope

    def shapes(self) -> list[object]:
        return [[] if isinstance(size, list) and size and isinstance(size[0], list) else size for size in self.sizes]

    def structured_input_shapes(self) -> list[object]:
        return self.sizes

    def stack(self) -> list[str]:
        return self.frames

    def nbytes(self) -> int:
        return self.bytes

    def cuda_elapsed_us(self) -> float:
        return self.device_us

    def is_user_annotation(self) -> bool:
        return self.activity.endswith("user_annotation")

    overload_name = metadata_json = _always("")
    structured_input_strides = dtypes = concrete_inputs = _always([])
    kwinputs = extra_meta = _always({})
    flops = flow_id = flow_type = _always(0)
    privateuse1_elapsed_us = python_id = python_parent_id = python_module_id = _always(-1)
    is_async = is_hidden_event = is_python_function = flow_start = _always(False)


class ProfileResult:
    """The result of a profile that has ended, with the methods of Kineto's `_ProfilerResult`.
    Kineto's tree of events is missing.
    """

    def __init__(self, timeline: Timeline, asked: Asked, metadata: dict[str, object]) -> None:
        self._timeline = timeline
        self._asked = asked
        self._metadata = metadata

    def trace_start_ns(self) -> int:
        return self._timeline.meta.zero_ns

    def events(self) -> list[Event]:
        return self._events

    def save(self, path: str) -> None:
        """Writes the profile as a Chrome trace to the file `path`."""
        write_trace(self._timeline, Path(path), head=self._metadata)

    def experimental_event_tree(self) -> list[object]:
        raise RuntimeError(
            "the virtual GPU's profile has no tree of Kineto's events, nor a timeline of memory, which is made of that "
            "tree: read events() instead, or record memory by torch.cuda.memory._record_memory_history()"
        )

    def trace_activities(self) -> list[object]:
        raise RuntimeError("the virtual GPU's profile is exported without use_python_export=True")

    @cached_property
    def _events(self) -> list[Event]:
        return list(_events(self._timeline, self._asked, import_module("torch.autograd").DeviceType))


def _events(timeline: Timeline, asked: Asked, devices: type[DeviceType]) -> Iterator[Event]:
    yield from _of_host(timeline, asked, devices)
    if asked.cuda and not asked.fallback:
        yield from _of_device(timeline, devices)
        if asked.cpu:
            yield from _annotated(timeline, devices)
    if asked.memory:
        yield from _of_memory(timeline, devices)


def _of_host(timeline: Timeline, asked: Asked, devices: type[DeviceType]) -> Iterator[Event]:
    host, strings, zero = timeline.host, timeline.strings, timeline.meta.zero_ns
    on_device = _device_us(timeline).tolist() if asked.fallback else None
    stacks = StackTexts(timeline) if asked.stacks else None
    columns = [
        column.tolist() for column in (host.kind, host.thread, host.start, host.end, host.name, host.op, host.stack)
    ]
    threads, forwards, makers = host.thread.tolist(), host.forward.tolist(), set(host.forward.tolist())
    evaluated = _evaluated(timeline)
    nodes = set(evaluated.values())
    for row, (kind, thread, start, end, name, op, stack) in enumerate(zip(*columns, strict=True)):
        called = kind in _CALLS
        if not (asked.cpu if kind in _SHOWN else called and asked.cuda and not asked.fallback):
            continue
        text = strings[name]
        event = Event(
            text,
            *("cuda_runtime" if called else "cpu_op" if kind == HostKind.OP else "user_annotation", start + zero),
            *(end + zero, thread + 1, row + 1),
            device=devices.CPU,
            lane=thread + 1,
        )
        if called:
            event.linked = op + 1
        elif kind == HostKind.ANNOTATION:
            event.of_scope = _USER_SCOPE
        elif (made_by := forwards[evaluated.get(row, row)]) >= 0:
            event.sequence, event.forward_thread = made_by, threads[made_by] + 1
            event.of_scope = _BACKWARD if row in nodes else _FUNCTION
        elif row in makers:
            event.sequence = row
        if asked.shapes and host.shapes[row] >= 0:
            event.sizes = json.loads(strings[host.shapes[row]])
        if stacks is not None and stack >= 0:
            event.frames = stacks[stack]
        if on_device is not None and kind == HostKind.OP:
            event.device_us = on_device[row]
        yield event


def _evaluated(timeline: Timeline) -> dict[int, int]:
    """Finds the operator of each node of the backward pass that autograd ran.

    Returns:
        A dict of rows of `timeline.host`. A key is the row of autograd's own event
        (`autograd::engine::evaluate_function: …`). Its value is the row of the operator right
        within this event.
    """
    host = timeline.host
    evaluates = np.array([text.startswith(_EVALUATES) for text in timeline.strings], np.bool_)
    rows = np.flatnonzero((host.forward >= 0) & (host.parent >= 0))
    rows = rows[evaluates[host.name[host.parent[rows]]]][::-1]  # the first child of an evaluation wins
    return dict(zip(host.parent[rows].tolist(), rows.tolist(), strict=True))


def _of_device(timeline: Timeline, devices: type[DeviceType]) -> Iterator[Event]:
    device, strings, zero = timeline.device, timeline.strings, timeline.meta.zero_ns
    operators, numbers = [*timeline.host.op.tolist(), -1], timeline.streams.stream.tolist()
    columns = (device.kind, device.device, device.stream, device.start, device.end, device.name, device.launch)
    for kind, index, stream, start, end, name, launch in zip(*(c.tolist() for c in columns), strict=True):
        yield Event(
            *(strings[name], _ACTIVITIES[DeviceKind(kind)], start + zero, end + zero, 0, launch + 1),
            linked=operators[launch] + 1,
            device=devices.CUDA,
            index=index,
            lane=numbers[stream],
        )


def _annotated(timeline: Timeline, devices: type[DeviceType]) -> Iterator[Event]:
    """Yields the host's annotations once more, as annotations of the device's streams.

    On a stream, an annotation lasts from the first start to the last end of those ops of the stream
    that the host launched within the annotation.
    """
    host, device, zero = timeline.host, timeline.device, timeline.meta.zero_ns
    launched = np.argsort(device.launch, kind="stable")
    by_launch = device.launch[launched]
    numbers = timeline.streams.stream.tolist()
    for row in np.flatnonzero(host.kind == HostKind.ANNOTATION).tolist():
        of_thread = np.searchsorted(host.thread, host.thread[row], side="right")
        beyond = row + np.searchsorted(host.start[row:of_thread], host.end[row], side="left")
        ops = launched[slice(*np.searchsorted(by_launch, (row, beyond)))]
        for stream in np.unique(device.stream[ops]).tolist():
            mine = ops[device.stream[ops] == stream]
            yield Event(
                *(timeline.strings[host.name[row]], "gpu_user_annotation", int(device.start[mine].min()) + zero),
                *(int(device.end[mine].max()) + zero, 0, row + 1),
                device=devices.CUDA,
                index=int(timeline.streams.device[stream]),
                lane=numbers[stream],
            )


def _of_memory(timeline: Timeline, devices: type[DeviceType]) -> Iterator[Event]:
    memory, zero = timeline.memory, timeline.meta.zero_ns
    for time, device, size in zip(memory.time.tolist(), memory.device.tolist(), memory.size.tolist(), strict=True):
        yield Event(
            *("[memory]", "cpu_instant_event", time + zero, time + zero, 1, 0),
            device=devices.CUDA if device >= 0 else devices.CPU,
            index=max(device, 0),
            bytes=size,
        )


def _device_us(timeline: Timeline) -> np.ndarray:
    """Returns the device time of each host event, in µs: from the first start to the last end of
    the ops that it launched. -1 if it launched none.

    It is what the program would measure with one CUDA event before the host event and one after it.
    """
    host, device = timeline.host, timeline.device
    first = np.full(len(host), np.iinfo(np.int64).max)
    last = np.full(len(host), -1, np.int64)
    joined = device.launch >= 0
    np.minimum.at(first, device.launch[joined], device.start[joined])
    np.maximum.at(last, device.launch[joined], device.end[joined])
    for row in range(len(host) - 1, -1, -1):  # callers stand before what they call
        parent = host.parent[row]
        if parent >= 0:
            first[parent], last[parent] = min(first[parent], first[row]), max(last[parent], last[row])
    return np.where(last >= 0, (last - np.minimum(first, last)) / 1e3, -1.0)
