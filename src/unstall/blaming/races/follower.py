"""Follows what memory each operator reads and writes, and in what order the operators run on the device.

The order comes from the stream model of torch's CUDA sanitizer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.cuda._sanitizer import EventHandler
from torch.multiprocessing.reductions import StorageWeakRef

from unstall.blaming.races.device_memory import DeviceMemory, Use
from unstall.blaming.races.host_memory import HostMemory
from unstall.blaming.races.noted import NotedRaces, Work
from unstall.blaming.races.spans import Span, span_of
from unstall.blaming.races.stacks import Stack, user_stack
from unstall.guest.dispatch_mode import DispatchMode

# They allocate or look, and neither read nor write.
_NO_WORK = re.compile(
    r"aten::(new_)?empty(_like|_strided)?|aten::empty_(permuted|quantized)|aten::new_empty_strided|aten::_unsafe_view|"
    r"aten::_reshape_alias|aten::is_pinned|aten::record_stream|aten::resize_|aten::set_|aten::_shape_as_tensor"
)
_LIKE = re.compile(r"aten::(new_\w+|\w+_like)")  # they read no value of their first argument
_NO_DISPATCH = torch._C._disabled_torch_dispatch_impl
Guard = Callable[..., Any]
"""A function that calls one of unstall's functions. It hides errors from the program, and returns None instead."""
_CALLED = {"aten::_to_copy": "aten::to", "aten::_local_scalar_dense": "aten::item"}
"""Maps an operator that torch dispatches to the operator that the program called."""
_MEETING = -1  # no pointer of an event
_COPIES = {"aten::copy_", "aten::_to_copy", "aten::_foreach_copy_"}


class _Schema(NamedTuple):
    """How an operator uses its arguments and results.

    An argument or a result is described by one value: True if the operator writes it, False if the operator only reads
    it, None if the operator does neither.

    Attributes:
        name: The operator that torch dispatches.
        called: The operator that the program called, such as aten::item for aten::_local_scalar_dense.
        works: Whether the operator reads or writes memory at all.
        by_place: The value for each argument, in order.
        by_name: The value for each argument, by the argument's name.
        returns: The value for each result, in order.
    """

    name: str
    called: str
    works: bool
    by_place: tuple[bool | None, ...]
    by_name: dict[str, bool | None]
    returns: tuple[bool | None, ...]


class _Part(NamedTuple):
    """The part of a tensor's storage that an operator used."""

    start: int
    end: int
    span: Span
    write: bool
    storage: Any


@dataclass(eq=False, slots=True)
class _Call:
    """A call of an operator. The call has not returned yet."""

    schema: _Schema
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    stream: int
    number: int
    parts: list[_Part] = field(default_factory=list)
    hosts: list[tuple[Span, bool]] = field(default_factory=list)  # of the host's memory, and whether it is written


@dataclass(eq=False, slots=True)
class Captured:
    """The work in a CUDA graph: the memory that it uses. Each replay of the graph uses the same memory again."""

    parts: list[tuple[_Part, str, Stack]] = field(default_factory=list)


class Follower(EventHandler):
    """Finds the races of a program: pairs of operations that use the same memory without waiting
    for each other.

    The class is told of each operator and of each replay of a CUDA graph. Streams, events,
    allocations and waits are reported to it by torch's GPU trace.
    """

    def __init__(self, noted: NotedRaces) -> None:
        super().__init__()
        self.device = DeviceMemory(self._is_ordered, noted)
        self.host = HostMemory(self._is_ordered, self._has_ended, noted)
        self.backward_at: Stack = ()
        self.capturing: Captured | None = None
        self._device_of: dict[int, int] = {}  # of each stream

    # What torch's GPU trace tells. Streams and events are followed by torch's EventHandler. A stream's pointer comes
    # while its device is the current one: 0 stands for the default stream of any device.

    def _handle_event_record(self, event: int, stream: int) -> None:
        super()._handle_event_record(event, self._stream(_device(), stream))

    def _handle_event_wait(self, event: int, stream: int) -> None:
        super()._handle_event_wait(event, self._stream(_device(), stream))

    def _handle_stream_creation(self, stream: int) -> None:
        super()._handle_stream_creation(self._stream(_device(), stream))

    def _handle_stream_synchronization(self, stream: int) -> None:
        super()._handle_stream_synchronization(self._stream(_device(), stream))

    def _handle_device_synchronization(self) -> None:
        current = _device()
        for stream, device in list(self._device_of.items()):
            if device == current:
                self.syncs.all_streams_wait_for_stream(stream)

    def _handle_memory_allocation(self, data_ptr: int) -> None:
        self.device.allocated(data_ptr, self._current_stream(_device()))

    def _handle_memory_deallocation(self, data_ptr: int) -> None:
        self.device.freed(data_ptr, user_stack())

    # What the host is told.

    def event_has_ended(self, event: Any) -> None:
        if event.cuda_event:
            self._handle_event_synchronization(event.cuda_event)

    def stream_has_ended(self, stream: Any) -> None:
        self.syncs.all_streams_wait_for_stream(self._stream(stream.device_index, stream.cuda_stream))

    # What the program does.

    def called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
        """Records a call of an operator, before the operator runs.

        Args:
            func: The operator.
            args: The operator's positional arguments.
            kwargs: The operator's keyword arguments.

        Returns:
            The value to pass to `returned` when the operator has returned; None if the operator
            uses no memory.
        """
        schema = _schema_of(func)
        if schema is None or not schema.works or (schema.name == "aten::copy_" and args[0] is args[1]):
            return None
        # A number before the call, so that a call that waits has waited for its own work, too.
        stream = self._current_stream(next(_devices_of(args, kwargs)))
        call = _Call(schema, args, kwargs, stream, self._next_number(stream))
        if schema.name in _COPIES:
            self._meet(stream, args, kwargs)
        for write, value in _arguments(schema, args, kwargs):
            self._sort(value, call, write=write)
        return call

    def returned(self, call: _Call, outputs: Any) -> None:
        """Records that an operator has returned. Compares the memory that it used with earlier
        uses, to find races.

        Args:
            call: What `called` returned for the operator.
            outputs: What the operator returned.
        """
        schema = call.schema
        values = outputs if isinstance(outputs, tuple | list) and len(schema.returns) > 1 else (outputs,)
        for write, value in zip(schema.returns, values, strict=False):
            if write is not None:
                self._sort(value, call, write=True)
        if not call.parts and not (call.hosts and self.host.is_used):
            return
        stack = user_stack() or self.backward_at  # autograd's own threads have no frames of the user's
        if self.capturing is not None and torch.cuda.is_current_stream_capturing():
            self.capturing.parts += [(part, schema.called, stack) for part in call.parts]
            return
        work = Work(call.stream, call.number, schema.called, stack, _in_backward())
        self._work(work, call.parts)
        copies = schema.name in _COPIES and bool(call.parts)
        on_host = work if copies else Work(None, 0, schema.called, stack)
        for span, write in call.hosts:
            self.host.used(span, on_host, write=write)
        if copies:
            self._copied(call, outputs, work)

    def reads_host(self, tensor: Any, operator: str) -> None:
        """Records that the host reads a tensor without an operator of torch, for example by
        `numpy()`.

        Args:
            tensor: The tensor.
            operator: The name that reports show for the read.
        """
        if self.host.is_used and tensor.device.type == "cpu" and (span := span_of(tensor)):
            self.host.used(span, Work(None, 0, operator, user_stack()), write=False)

    def replayed(self, captured: Captured) -> None:
        """Records a replay of a CUDA graph. Compares the memory that the graph uses with earlier
        uses, to find races.

        `captured` is the work in the graph.
        """
        stream = self._current_stream(_device())
        number, at = self._next_number(stream), user_stack()
        for part, name, stack in captured.parts:
            if not part.storage.expired():  # else it is the graph's own
                self._work(Work(stream, number, name, stack, replayed=at), [part])

    def recorded(self, tensor: Any, stream: Any) -> None:
        """Records that the program called `tensor.record_stream(stream)`."""
        if tensor.is_cuda:
            raw = getattr(stream, "cuda_stream", None)
            if raw is None:
                raw = torch.cuda.Stream(
                    stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
                ).cuda_stream
            self.device.record_stream(tensor.untyped_storage().data_ptr(), self._stream(stream.device_index, raw))

    def _stream(self, device: int, pointer: int) -> int:
        """Returns a number that identifies a stream. For a default stream, it is minus the index of
        its device. For any other stream, it is the stream's pointer.
        """
        stream = pointer or -device
        self._device_of.setdefault(stream, device)
        return stream

    def _meet(self, stream: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Makes the current streams of two devices wait for each other, as a copy between the devices does."""
        *devices, _ = _devices_of(args, kwargs)
        for other in {self._current_stream(device) for device in devices} - {stream}:
            for waited, waits in ((stream, other), (other, stream)):
                self.syncs.record_state(_MEETING, waited)
                self.syncs.stream_wait_for_event(waits, _MEETING)

    def _current_stream(self, device: int) -> int:
        """Returns the current stream of a device. This is ten times as fast as `torch.cuda.current_stream()`."""
        return self._stream(device, int(torch._C._cuda_getCurrentRawStream(device)))

    def _next_number(self, stream: int) -> int:
        self.seq_num += 1
        self.syncs.update_seq_num(stream, self.seq_num)
        return self.seq_num

    def _sort(self, value: Any, call: _Call, *, write: bool) -> None:
        for tensor in _tensors(value):
            if tensor.is_cuda:
                if (span := _span(tensor)) is not None:
                    storage = tensor.untyped_storage()
                    start = storage.data_ptr()
                    call.parts.append(_Part(start, start + storage.nbytes(), span, write, StorageWeakRef(storage)))
            elif self.host.is_used and tensor.device.type == "cpu" and (span := _span(tensor)):
                call.hosts.append((span, write))

    def _work(self, work: Work, parts: list[_Part]) -> None:
        """Compares the memory that `work` uses with earlier uses.

        A part that `work` both reads and writes counts once, as written.
        """
        once = {part.span: part for part in sorted(parts, key=lambda part: part.write)}
        for part in once.values():
            self.device.used(part.start, part.end, Use(part.span, part.write, work))

    def _copied(self, call: _Call, outputs: Any, work: Work) -> None:
        """Records the host memory that a copy may still use after its call has returned."""
        args, kwargs = call.args, call.kwargs
        into_first = call.schema.name != "aten::_to_copy"
        blocks = not (kwargs.get("non_blocking") or (into_first and len(args) > 2 and args[2]))
        targets, sources = (args[0], args[1]) if into_first else (outputs, args[0])
        for target, source in zip(_tensors(targets), _tensors(sources), strict=False):
            host, device = (source, target) if target.is_cuda else (target, source)
            if host.is_cuda or not device.is_cuda:
                continue
            if not host.is_pinned():
                if host is target and work.stream is not None:
                    self.syncs.all_streams_wait_for_stream(work.stream)  # it returns once the memory is filled
            elif not blocks and (host.is_contiguous() or host.stride() == device.stride()) and (span := _span(host)):
                self.host.copies(span, work, StorageWeakRef(host.untyped_storage()), write=host is target)

    def _is_ordered(self, earlier: Work, later: Work) -> bool:
        if earlier.stream is None or earlier.stream == later.stream:
            return True  # the host works in order, and launches later work later
        if later.stream is None:
            return self._has_ended(earlier)
        return bool(self.syncs.is_ordered_after(later.stream, earlier.number, earlier.stream))

    def _has_ended(self, work: Work) -> bool:
        return work.stream is None or bool(work.number <= self.syncs.host_sync_state.get(work.stream, -1))


class FollowingMode(DispatchMode):
    """A dispatch mode that reports operators to a `Follower`: those of this thread, and those
    of the autograd threads that work for this thread.
    """

    supports_higher_order_operators = True

    def __init__(self, follower: Follower, guarded: Guard) -> None:
        super().__init__()
        self._follower, self._guarded = follower, guarded

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(each.__torch_dispatch__ is not _NO_DISPATCH for each in types):
            return NotImplemented  # a tensor that consists of others: it calls operators of theirs
        if not torch.cuda.is_initialized():
            return func(*args, **kwargs)
        call = self._guarded(self._follower.called, func, args, kwargs)
        outputs = func(*args, **kwargs)
        if call is not None:
            self._guarded(self._follower.returned, call, outputs)
        return outputs


@lru_cache(None)
def _schema_of(func: Any) -> _Schema | None:
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    like = bool(_LIKE.fullmatch(schema.name))
    arguments = {
        each.name: each.alias_info.is_write or None if each.alias_info is not None else (None if like else False)
        for each in schema.arguments
    }
    returns = tuple(
        each.alias_info.is_write or None if each.alias_info is not None else True for each in schema.returns
    )
    return _Schema(
        schema.name,
        _CALLED.get(schema.name, schema.name),
        not _NO_WORK.fullmatch(schema.name),
        tuple(arguments.values()),
        arguments,
        returns,
    )


def _arguments(schema: _Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[bool, Any]]:
    for write, value in zip(schema.by_place, args, strict=False):
        if write is not None:
            yield write, value
    for name, value in kwargs.items():
        write = schema.by_name.get(name)
        if write is not None:
            yield write, value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _span(tensor: torch.Tensor) -> Span | None:
    with suppress(RuntimeError, NotImplementedError):  # sparse, fake or functional: it has no bytes of its own
        return span_of(tensor)
    return None


def _device() -> int:
    return int(torch.cuda.current_device())


def _devices_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[int]:
    """Yields the devices of an operator's arguments, and then the current device.

    The operator runs on the current stream of the first device that is yielded.
    """
    wanted = kwargs.get("device")
    if isinstance(wanted, torch.device) and wanted.type == "cuda" and wanted.index is not None:
        yield wanted.index
    for value in (*args, *kwargs.values()):
        for tensor in _tensors(value):
            if tensor.is_cuda:
                yield tensor.device.index
    yield _device()


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)
