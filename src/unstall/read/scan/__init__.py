"""Scans events of a trace straight into columns, in C (`_scan.c`).

The modules `decode` and `columns` define what an event means. The C scan does the same faster, but
only for text in the usual form. It returns None for a piece of the trace that has anything unusual,
and `decode` then decodes that piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from unstall.timeline.columns import I32, I64

try:
    from unstall.read.scan import _scan
except ImportError:
    _scan = None  # type: ignore[assignment]  # built only if there is a C compiler

_Value = TypeVar("_Value", str, bytes)
Parts: TypeAlias = tuple[list[str], list[bytes], int, list[bytes]]


class Scanned:
    """The events with a start and a duration (phase "X") in one piece of a trace. A text is given
    by its index in `texts`, a value that is kept as JSON by its index in `jsons`.

    Attributes:
        texts: The distinct texts, in the order in which the piece first has them.
        jsons: The distinct values that are kept as JSON, in the order in which the piece first has
            them.
        count: How many events the piece has, without those in `others`.
        lane: The index in `lanes` of each event.
        name: The text of each event's name.
        start: The start of each event in ns of the file's clock.
        duration: The duration of each event in ns.
        external: The external id of each event, -1 if it has none.
        correlation: The correlation id of each event, -1 if it has none.
        lanes: The distinct triples (category, process, thread) of events, as texts. Shape (lanes,
            3).
        device: Row, device, stream, bytes, grid (JSON) and share (of the device that a kernel uses)
            of events with any of these. Shape (rows, 6).
        sync: Row, record call, event and stream of waits. Shape (rows, 4).
        autograd: Row, sequence number and forward thread of events with any of these. Shape (rows,
            3).
        stack: Row and text of events with a call stack. Shape (rows, 2).
        shapes: Row and JSON of events with shapes of inputs. Shape (rows, 2).
        collective: Row and the JSON of each field of `collectives.DESCRIBED`; -1 if the event lacks
            it. Shape (rows, 12).
        others: Start and end, as byte offsets in the piece, of events of other phases. Shape
            (events, 2).
    """

    def __init__(self, parts: Parts) -> None:
        self.texts, self.jsons, self.count, columns = parts
        lane, name, start, duration, external, correlation, lanes, *tables = columns
        self.lane, self.name = np.frombuffer(lane, np.int32), np.frombuffer(name, np.int32)
        self.start, self.duration = np.frombuffer(start, np.int64), np.frombuffer(duration, np.int64)
        self.external, self.correlation = np.frombuffer(external, np.int64), np.frombuffer(correlation, np.int64)
        self.lanes: I32 = np.frombuffer(lanes, np.int32).reshape(-1, 3)
        self.device, self.sync, self.autograd, self.stack, self.shapes, self.collective, self.others = (
            np.frombuffer(table, np.int64).reshape(-1, width)
            for table, width in zip(tables, (6, 4, 3, 2, 2, 12, 2), strict=True)
        )


def scanned(piece: bytes | memoryview) -> Scanned | None:
    """Scans `piece`, a JSON list of events, with the scanner in C. Returns None if the piece has
    anything unusual, or if the scanner was not built.
    """
    parts = _scan.scan(piece) if _scan is not None else None
    return None if parts is None else Scanned(parts)


class Numbers(Generic[_Value]):
    """Translates numbers that count within one piece of a trace, such as indices of texts, to
    numbers that count within the whole file.

    `values` are distinct. A number stands for the value at this index; -1 for the last one.
    `meaning` is a function that returns the translations of several values. It is called once for
    each number, when the number is first used, in the order of use. Its results are kept.
    """

    def __init__(self, values: Sequence[_Value], meaning: Callable[[Sequence[_Value]], list[int]]) -> None:
        self._known = np.full(len(values), -1, np.int64)
        self._is_new = np.ones(len(values), np.bool_)
        self._values: Sequence[_Value] = values
        self._meaning: Callable[[Sequence[_Value]], list[int]] = meaning

    def of(self, numbers: I64 | I32) -> I64:
        first = np.full(len(self._values), -1, np.int64)
        first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # of several, the last stays
        new = np.flatnonzero(self._is_new & (first >= 0))
        if len(new):
            new = new[np.argsort(first[new])]
            self._known[new] = self._meaning([self._values[number] for number in new.tolist()])
            self._is_new[new] = False
        return self._known[numbers]
