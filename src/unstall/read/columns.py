"""Collects the decoded events of a trace file into the columns of `Events`, which grow while the file is read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import prod
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from unstall.decoding import json_decoder
from unstall.read.collectives import DESCRIBED, Described
from unstall.read.decode import DecodedEvents
from unstall.read.events import Events
from unstall.read.names import SYNCS, copy_name, device_kind, host_kind, is_no_work, memset_name
from unstall.read.scan import Numbers, Scanned
from unstall.read.schema import NO_JSON, Args, ArrowEnd, Complete
from unstall.timeline.columns import I32, I64, Bool, DeviceKind, HostKind, Meta

_UNKNOWN_U32 = 2**32 - 1  # CUPTI's value for an unknown stream or event
_MOST_I32 = 2**31 - 1
_Length: TypeAlias = Annotated[int, msgspec.Meta(gt=0, le=_MOST_I32)]
_GRID = json_decoder(tuple[_Length, _Length, _Length])
_WHOLE = 1000  # thousandths of a device
_LONGEST_GRID = 80  # characters, with white space
_HOST = 0  # c10::DeviceType of host memory


_NAMED_BY_FIELDS = (DeviceKind.COPY, DeviceKind.MEMSET)

# The fields that events of a category can have; others are not looked up.
_OF_DEVICE, _OF_SYNC, _OF_OP = 1, 2, 4


@lru_cache(1024)
def _carried(category: str) -> int:
    host = host_kind(category)
    is_unknown = host < 0 and not is_no_work(category)  # may be work of the device, which is then told
    return (
        (_OF_DEVICE if device_kind(category) >= 0 or is_unknown else 0)
        | (_OF_DEVICE | _OF_SYNC if category in SYNCS else 0)
        | (_OF_OP if host in (HostKind.OP, HostKind.ANNOTATION) else 0)
    )


class Strings(dict[Any, int]):
    """A dict from texts to indices: `strings.texts[strings[text]]` is `text`. Looking up a new text
    appends it to `strings.texts`.

    A number may be looked up too: it stands for the text of its digits. So may bytes of JSON: they
    stand for the text of the JSON without white space.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.size = 0  # characters

    def __missing__(self, key: str | int | bytes) -> int:
        if isinstance(key, str):
            index = len(self.texts)
            self.texts.append(key)
        else:
            index = self[_shortest_json(key) if isinstance(key, bytes) else str(key)]
        self.size += 0 if isinstance(key, int) else len(key)
        self[key] = index
        return index

    def texts_of(self, texts: Sequence[str]) -> list[int]:
        """Looks up distinct texts one after the other, but faster."""
        new = [text for text in texts if text not in self]
        self.update(zip(new, range(len(self.texts), len(self.texts) + len(new)), strict=True))
        self.texts += new
        self.size += sum(map(len, new))
        return list(map(self.__getitem__, texts))

    def jsons_of(self, jsons: Sequence[bytes]) -> list[int]:
        """Looks up distinct JSON, one after the other, but faster."""
        new = [json for json in jsons if json not in self]
        texts = list(map(_shortest_json, new))
        self.texts_of(list(dict.fromkeys(texts)))
        self.update(zip(new, map(self.__getitem__, texts), strict=True))
        self.size += sum(map(len, new))
        return list(map(self.__getitem__, jsons))


def _name(event: Complete[Any]) -> str:
    """Returns the event's name as Kineto spells it. torch's second profiler
    (`torch.profiler.CuspyConfig`) names every copy "Memcpy" and every memset "Memset". For these,
    the name is made from the event's `args`.
    """
    if event.name == "Memcpy":
        return copy_name(event.args.copy_kind, event.args.copied_from, event.args.copied_to)
    return memset_name(event.args.memory_kind) if event.name == "Memset" else event.name


def _stream(args: Args) -> int:
    return args.stream if args.original_stream < 0 else args.original_stream


@lru_cache(4096)  # the ranks of a job have the same shapes
def _shortest_json(text: bytes) -> str:
    try:
        return msgspec.json.format(text, indent=-1).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.decode("utf-8", "replace")


@lru_cache(4096)
def _blocks_of(grid: bytes) -> int:
    """Returns the number of thread blocks of a kernel's grid, given as JSON, such as [8, 1, 1]. Returns -1 for JSON
    that is not a grid.
    """
    try:
        return min(prod(_GRID.decode(grid)), _MOST_I32) if len(grid) <= _LONGEST_GRID else -1
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return -1


class _Lanes(dict[tuple[str, str | int, str | int], int]):
    """A dict from triples (category, process, thread) to numbers. Looking up a new triple gives it
    the next number. A trace has only few distinct triples.

    `columns` has three lists with one element per triple: the text indices of the category, the
    process and the thread.
    """

    def __init__(self, text: Strings) -> None:
        super().__init__()
        self._text = text
        self.columns: tuple[list[int], list[int], list[int]] = [], [], []

    def __missing__(self, lane: tuple[str, str | int, str | int]) -> int:
        for column, part in zip(self.columns, lane, strict=True):
            column.append(self._text[part])
        self[lane] = len(self)
        return self[lane]


class _Column:
    """A growing column with one integer per row."""

    def __init__(self, dtype: type[np.int32] | type[np.int64] = np.int64) -> None:
        self._dtype = dtype
        self._values = array("i" if dtype is np.int32 else "q")

    def __len__(self) -> int:
        return len(self._values)

    def extend(self, values: Iterable[int], count: int) -> None:
        self.append(np.fromiter(values, self._dtype, count))

    def append(self, values: NDArray[Any]) -> None:
        self._values.frombytes(np.ascontiguousarray(values, self._dtype).view(np.uint8).data)

    def array(self) -> NDArray[Any]:
        """Returns the column's values as an array that shares memory with the column."""
        return np.frombuffer(self._values, self._dtype)


class _Sparse:
    """Columns with values for only some of the events.

    Each column has a name and a function that returns the column's value, given the `args` of an
    event.
    """

    def __init__(self, **figures: Callable[[Any], int]) -> None:
        self._figures = figures
        self._row = _Column()
        self._columns = {name: _Column() for name in figures}

    def extend(self, rows: I64, args: Sequence[Any], chosen: list[int] | None = None) -> None:
        """Adds the values of events.

        Args:
            rows: The row number of each event.
            args: The `args` of each event.
            chosen: Positions in `rows` and `args`. If given, only the events at these positions are
                added.
        """
        if chosen is not None:
            if not chosen:
                return
            rows, args = rows[chosen], [args[i] for i in chosen]
        self._row.append(rows)
        for name, figure in self._figures.items():
            self._columns[name].extend(map(figure, args), len(args))

    def append(self, rows: I64, **values: I64) -> None:
        """Adds values of events that are in arrays already. `rows` has the row number of each
        event, `values` one array per column.
        """
        if not len(rows):
            return
        self._row.append(rows)
        for name, column in self._columns.items():
            column.append(values[name])

    def rows(self) -> I64:
        return self._row.array()

    def column(self, name: str) -> I64:
        """Returns the values of the column `name`, in the order of `rows()`; -1 if a value is
        unknown. Can be called only once per column.
        """
        values = self._columns.pop(name).array()
        values[(values < 0) | (values == _UNKNOWN_U32)] = -1
        return values

    def dense(self, name: str, length: int) -> I64:
        """Returns the column `name` with one value for each of `length` events, -1 for an event
        without a value.

        If no event has a value, the result is a view of one number, and takes no memory.
        """
        if not len(self._row):
            return np.broadcast_to(np.int64(-1), length)
        column = np.full(length, -1, np.int64)
        column[self.rows()] = self.column(name)
        return column


class EventTable:
    """Collects the decoded events of a whole trace file. `finish` returns them as `Events`."""

    def __init__(self) -> None:
        self.strings = text = Strings()
        self.labels: dict[tuple[str, str], str] = {}
        self.gpus: set[str] = set()
        self._lanes = _Lanes(text)
        self._lane, self._name = _Column(np.int32), _Column(np.int32)
        self._start, self._duration, self._external, self._correlation = (_Column() for _ in range(4))
        self._device = _Sparse(
            device=attrgetter("device"),
            stream=_stream,
            bytes=attrgetter("bytes"),
            blocks=lambda a: _blocks_of(bytes(a.grid)),
            share=lambda a: a.share if -1 <= a.share <= _WHOLE else -1,
        )
        self._autograd = _Sparse(sequence=attrgetter("sequence"), thread=attrgetter("forward_thread"))
        self._stack = _Sparse(text=lambda a: text[a.stack])
        self._shapes = _Sparse(text=lambda a: text[bytes(a.shapes if a.shapes is not NO_JSON else a.old_shapes)])
        self._collective = _Sparse(**{name: lambda a, name=name: text[bytes(getattr(a, name))] for name in DESCRIBED})
        self._sync = _Sparse(
            record=attrgetter("sync_record"),
            event=attrgetter("sync_event"),
            on_stream=attrgetter("sync_on_stream"),
        )
        self._arrow_id, self._arrow_time = _Column(), _Column()
        self._arrow_is_end, self._arrow_thread = _Column(np.int32), _Column(np.int32)
        self._memory_time, self._memory_device, self._memory_size, self._allocated, self._reserved, self._address = (
            _Column() for _ in range(6)
        )

    def add(self, rows: DecodedEvents) -> None:
        self._add_complete(rows)
        if rows.arrows:
            self._add_arrows(rows)
        if rows.memory:
            self._add_memory(rows)
        for label in rows.labels:
            process = self.strings.texts[self.strings[label.process]]
            thread = self.strings.texts[self.strings[label.thread]]
            if label.name == "thread_name":
                self.labels[process, thread] = label.args.name
            elif label.name == "process_name":
                self.labels[process, ""] = label.args.name
            elif label.name == "process_labels" and label.args.labels.startswith("GPU"):
                self.gpus.add(process)

    def _add_complete(self, rows: DecodedEvents) -> None:
        text, events, first = self.strings, rows.complete, len(self._start)
        args = [e.args for e in events]
        count = len(events)
        lanes = self._lanes
        lane = np.fromiter([lanes[e.category, e.process, e.thread] for e in events], np.int32, count)
        self._lane.append(lane)
        name = [text[e.name] for e in events]
        self._start.append(rows.start)
        self._duration.append(rows.duration)
        self._external.extend([a.external if a.external >= 0 else a.old_external for a in args], count)
        self._correlation.extend([a.correlation for a in args], count)
        category_of = lanes.columns[0]
        category = np.array(category_of, np.int32)[lane]
        for known in {category_of[i] for i in np.flatnonzero(np.bincount(lane)).tolist()}:
            if figures := _carried(text.texts[known]):
                rows_of_it = np.flatnonzero(category == known)
                self._add_figures(figures, rows_of_it + first, [args[i] for i in rows_of_it.tolist()])
            if device_kind(text.texts[known]) in _NAMED_BY_FIELDS:
                for i in np.flatnonzero(category == known).tolist():
                    name[i] = text[_name(events[i])]
        self._name.extend(name, count)

    def _add_figures(self, figures: int, rows: I64, args: list[Args]) -> None:
        """Adds the `args` of events that share one category.

        Args:
            figures: Flags, such as `_OF_DEVICE`. They say which groups of fields an event of this
                category can have.
            rows: The row number of each event.
            args: The `args` of each event.
        """
        if figures & (_OF_DEVICE | _OF_OP):
            described = [i for i, a in enumerate(args) if a.collective is not NO_JSON]
            self._collective.extend(rows, args, described)
        if figures & _OF_DEVICE:
            self._device.extend(rows, args)
        if figures & _OF_SYNC:
            self._sync.extend(rows, args)
        if figures & _OF_OP:
            in_graph = [i for i, a in enumerate(args) if a.sequence >= 0 or a.forward_thread >= 0]
            shaped = [i for i, a in enumerate(args) if a.shapes is not NO_JSON or a.old_shapes is not NO_JSON]
            self._autograd.extend(rows, args, in_graph)
            self._stack.extend(rows, args, [i for i, a in enumerate(args) if a.stack])
            self._shapes.extend(rows, args, shaped)

    def add_scanned(self, found: Scanned) -> None:
        """Adds events with a start and a duration that `scan.scanned` found in a piece of the trace file."""
        text, lanes, first = self.strings, self._lanes, len(self._start)
        known_jsons = [*found.jsons, b""]  # the number -1 is the last: none
        texts = Numbers(found.texts, text.texts_of)
        jsons = Numbers(known_jsons, text.jsons_of)
        grids = Numbers(known_jsons, lambda grids: list(map(_blocks_of, grids)))
        lane_of = [lanes[tuple(found.texts[part] for part in lane)] for lane in found.lanes.tolist()]
        lane = np.array(lane_of, np.int32)[found.lane]
        self._lane.append(lane)
        self._name.append(texts.of(found.name).astype(np.int32))
        for column in ("start", "duration", "external", "correlation"):
            getattr(self, f"_{column}").append(getattr(found, column))
        category_of = lanes.columns[0]
        category = np.array(category_of, np.int32)[lane]
        for known in {category_of[i] for i in np.flatnonzero(np.bincount(lane)).tolist()}:
            figures, mine = _carried(text.texts[known]), category == known
            if figures & (_OF_DEVICE | _OF_OP):
                row, *described = _among(found.collective, mine)
                if len(row):
                    self._collective.append(
                        row + first, **{name: jsons.of(each) for name, each in zip(DESCRIBED, described, strict=True)}
                    )
            if figures & _OF_DEVICE:
                row, device, stream, moved, grid, share = _among(found.device, mine)
                share = np.where((share >= -1) & (share <= _WHOLE), share, -1)
                self._device.append(
                    row + first, device=device, stream=stream, bytes=moved, blocks=grids.of(grid), share=share
                )
            if figures & _OF_SYNC:
                at = np.full(len(mine), -1, np.int64)
                at[found.sync[:, 0]] = np.arange(len(found.sync))
                sync = np.vstack((found.sync, np.full(4, -1)))[at[mine]].T
                self._sync.append(np.flatnonzero(mine) + first, record=sync[1], event=sync[2], on_stream=sync[3])
            if figures & _OF_OP:
                row, sequence, thread = _among(found.autograd, mine)
                self._autograd.append(row + first, sequence=sequence, thread=thread)
                row, stack = _among(found.stack, mine)
                self._stack.append(row + first, text=texts.of(stack))
                row, shapes = _among(found.shapes, mine)
                self._shapes.append(row + first, text=jsons.of(shapes))

    def _add_arrows(self, rows: DecodedEvents) -> None:
        count = len(rows.arrows)
        self._arrow_id.extend((e.id for e in rows.arrows), count)
        self._arrow_is_end.extend((type(e) is ArrowEnd for e in rows.arrows), count)
        self._arrow_thread.extend((self.strings[e.thread] for e in rows.arrows), count)
        self._arrow_time.append(rows.arrow_time)

    def _add_memory(self, rows: DecodedEvents) -> None:
        args = [e.args for e in rows.memory]
        self._memory_time.append(rows.memory_time)
        self._memory_device.extend([a.device if a.device_type != _HOST else -1 for a in args], len(args))
        self._memory_size.extend([a.size for a in args], len(args))
        self._allocated.extend([a.allocated for a in args], len(args))
        self._reserved.extend([a.reserved for a in args], len(args))
        self._address.extend([a.address for a in args], len(args))

    def finish(self, meta: Meta) -> Events:
        """Returns all collected events. Their times are in ns since the start of the first event.

        `meta` has facts about the trace file, and becomes a part of the result. Before the call,
        `meta.zero_ns` is the time on the file's clock from which times were counted so far. In the
        result, it is the start of the first event on this clock.
        """
        count = len(self._start)
        start = self._start.array()
        zero = int(start.min()) if count else 0
        start -= zero
        memory_time = self._memory_time.array()
        by_time = np.argsort(memory_time, kind="stable")
        lane = self._lane.array()
        category, process, thread = (np.array(column, np.int32)[lane] for column in self._lanes.columns)
        self.strings.clear()
        return Events(
            strings=self.strings.texts,
            category=category,
            name=self._name.array(),
            start=start,
            duration=self._duration.array(),
            process=process,
            thread=thread,
            external=_known(self._external.array()),
            correlation=_known(self._correlation.array()),
            device=_narrow(self._device.dense("device", count)),
            stream=self._device.dense("stream", count),
            bytes=self._device.dense("bytes", count),
            blocks=_narrow(self._device.dense("blocks", count)),
            share=_narrow(self._device.dense("share", count)),
            sequence=self._autograd.dense("sequence", count),
            forward_thread=self._autograd.dense("thread", count),
            stack=_narrow(self._stack.dense("text", count)),
            shapes=_narrow(self._shapes.dense("text", count)),
            sync_row=self._sync.rows(),
            sync_record=self._sync.column("record"),
            sync_event=self._sync.column("event"),
            sync_on_stream=self._sync.column("on_stream"),
            flow_id=self._arrow_id.array(),
            flow_is_end=self._arrow_is_end.array(),
            flow_thread=self._arrow_thread.array(),
            flow_time=self._arrow_time.array() - zero,
            memory_time=memory_time[by_time] - zero,
            memory_device=_narrow(self._memory_device.array()[by_time]),
            memory_size=self._memory_size.array()[by_time],
            memory_allocated=self._allocated.array()[by_time],
            memory_reserved=self._reserved.array()[by_time],
            memory_address=self._address.array()[by_time],
            meta=replace(meta, zero_ns=meta.zero_ns + zero),
            thread_names=self.labels,
            collectives=Described(
                row=self._collective.rows(), **{name: _narrow(self._collective.column(name)) for name in DESCRIBED}
            ),
            gpus=self.gpus,
        )


def _among(table: I64, chosen: Bool) -> I64:
    """Returns the columns of `table`, as rows of an array, for the rows of `table` whose event is
    chosen. Column 0 of `table` has the event of each row; `chosen` tells for each event whether it
    is chosen.
    """
    return table[chosen[table[:, 0]]].T


def _known(ids: I64) -> I64:
    return np.maximum(ids, -1, out=ids)


def _narrow(column: I64) -> I32:
    """Converts a column to int32. Values that do not fit become -1."""
    if column.strides == (0,):
        return np.broadcast_to(np.int32(-1), len(column))
    column[(column < -1) | (column > _MOST_I32)] = -1
    return column.astype(np.int32)
