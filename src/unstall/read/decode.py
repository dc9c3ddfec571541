"""Decodes the JSON of events. The decoded times are exact to the ns.

There are three decoders. The first reads times as ints, as older files write them. The second reads
times as floats, which are exact to the ns below 2**42 µs. The third reads times as decimals, which
are always exact but slower. A file is decoded in pieces of about 1 MiB. Each piece is first given
to the decoder that could read the piece before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from functools import cache
from itertools import compress
from types import GenericAlias
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
import numpy as np

from unstall.decoding import json_decoder
from unstall.read.schema import Arrow, ArrowEnd, Complete, Event, Instant, Label, event_type
from unstall.timeline.columns import I64

_Timed = TypeVar("_Timed", Complete[Any], Arrow[Any], Instant[Any])
_ToNs: TypeAlias = Callable[[list[Any]], I64 | None]

_NOT_WORK = frozenset({"Trace", "Spans"})
_FORWARD_TO_BACKWARD = frozenset({"fwdbwd", "forward_backward"})

_MOST_US = 3 * 10**15  # 95 years: three times as many ns still fit an int64
_COARSE_NS = 2**42 * 1000  # from here on floats cannot represent every ns
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
_ABSENT, _BEYOND = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class DecodedEvents(msgspec.Struct):
    """The events in one part of a trace file, without those that unstall does not use. Times are in
    ns of the file's clock.

    Attributes:
        complete: Events with a start and a duration (phase "X").
        start: The start of each event in `complete`.
        duration: The duration of each event in `complete`, in ns.
        arrows: Starts and ends of flow arrows, which lead from forward to backward operators.
        arrow_time: The time of each item in `arrows`.
        memory: The "[memory]" events of torch's allocator.
        memory_time: The time of each event in `memory`.
        labels: The events that name processes and threads.
    """

    complete: list[Complete[Any]]
    start: I64
    duration: I64
    arrows: list[Arrow[Any]]
    arrow_time: I64
    memory: list[Instant[Any]]
    memory_time: I64
    labels: list[Label]


class Decoder:
    """Decodes the events of a trace file from JSON, and counts how many were malformed."""

    def __init__(self) -> None:
        self.events = 0
        self.negative = 0  # durations
        self.timeless = 0  # complete events without a time
        self.beyond = 0  # … or with a time out of range
        self.repaired_text = 0  # events that were not JSON
        self.repaired_values = 0  # … or held values of another type
        self._usual = 0

    def piece(self, text: bytes | memoryview) -> DecodedEvents | None:
        """Decodes `text`, a JSON list of events, and returns the events. Returns None if one of them is malformed."""
        for i in (self._usual, *(i for i in range(len(_NUMBERS)) if i != self._usual)):
            number, to_ns = _NUMBERS[i]
            try:
                rows = self._rows(_decoder_of(number).decode(text), to_ns)
            except msgspec.ValidationError:
                continue
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return None
            if rows is None:
                continue
            if to_ns is not _from_decimals or (len(rows.start) and rows.start[0] >= _COARSE_NS):
                self._usual = i
            return rows
        return None

    def event(self, text: bytes) -> Event | None:
        """Decodes `text`, the JSON of one event, and returns the event. Its times are decimals. A
        malformed event is repaired first. Returns None if it cannot be repaired.
        """
        from unstall.read.repair import repair  # here, since few events need it

        event, new_text, new_values = repair(text)
        if event is not None:
            self.repaired_text += new_text
            self.repaired_values += new_values
        return event

    def exact(self, events: Sequence[Event]) -> DecodedEvents:
        """Returns `events`, whose times are decimals as `event` returns them, with their times in ns."""
        rows = self._rows(events, _from_decimals)
        assert rows is not None
        return rows

    def _rows(self, events: Sequence[Any], to_ns: _ToNs) -> DecodedEvents | None:
        """Sorts events by phase, and converts their times by `to_ns`. Returns None if `to_ns`
        cannot convert them exactly.
        """
        complete: list[Complete[Any]] = []
        arrows: list[Arrow[Any]] = []
        memory: list[Instant[Any]] = []
        labels: list[Label] = []
        for e in events:
            phase = type(e)
            if phase is Complete:
                if e.category not in _NOT_WORK:
                    complete.append(e)
            elif phase is Arrow or phase is ArrowEnd:
                if e.category in _FORWARD_TO_BACKWARD:
                    arrows.append(e)
            elif phase is Instant:
                if e.name == "[memory]":
                    memory.append(e)
            elif phase is Label:
                labels.append(e)
        start, duration = to_ns([e.ts for e in complete]), to_ns([e.dur for e in complete])
        arrow_time, memory_time = to_ns([e.ts for e in arrows]), to_ns([e.ts for e in memory])
        if start is None or duration is None or arrow_time is None or memory_time is None:
            return None
        if to_ns is _from_decimals:
            duration[duration == _ABSENT] = 0
            self.timeless += int((start == _ABSENT).sum())
            self.beyond += int(((start == _BEYOND) | (duration == _BEYOND)).sum())
            complete, start, duration = _placeable(complete, start, duration)
            arrows, arrow_time, _ = _placeable(arrows, arrow_time, arrow_time)
            memory, memory_time, _ = _placeable(memory, memory_time, memory_time)
        negative = duration < 0
        if negative.any():
            self.negative += int(negative.sum())
            duration[negative] = 0
        self.events += len(events)
        return DecodedEvents(complete, start, duration, arrows, arrow_time, memory, memory_time, labels)


def _placeable(events: list[_Timed], first: I64, second: I64) -> tuple[list[_Timed], I64, I64]:
    """Drops each event with a time that is unknown or out of range. Returns `(events, first,
    second)` without them.

    Args:
        events: The events.
        first: For each event, its start or its only time, in ns.
        second: For each event, another of its times in ns, such as its duration.
    """
    known = (first > _ABSENT) & (first < _BEYOND) & (second > _ABSENT) & (second < _BEYOND)
    if known.all():
        return events, first, second
    return list(compress(events, known.tolist())), first[known], second[known]


def _from_ints(values: list[Any]) -> I64 | None:
    try:
        us = np.fromiter(values, np.int64, len(values))
    except (TypeError, OverflowError):  # one is absent, or huge
        return None
    if len(us) and (us.min() < -_MOST_US or us.max() > _MOST_US):
        return None
    return us * 1000


def _from_floats(values: list[Any]) -> I64 | None:
    """Converts µs to ns. Returns None if the nearest ns is not certain for every value: a float may
    differ from the number in the file by half the distance between neighbouring floats.
    """
    try:
        us = np.fromiter(values, np.float64, len(values))
    except TypeError:
        return None
    whole = np.floor(us)
    part = (us - whole) * 1000
    nearest = np.rint(part)
    certain = np.abs(part - nearest) + 501 * np.spacing(np.abs(us)) < 0.5
    if not (certain & (np.abs(us) <= _MOST_US)).all():
        return None
    return whole.astype(np.int64) * 1000 + nearest.astype(np.int64)


def _from_decimals(values: list[Any]) -> I64:
    return np.fromiter(map(_exact_ns, values), np.int64, len(values))


def _exact_ns(us: Decimal | None) -> int:
    if us is None:
        return _ABSENT
    if not us.is_finite():
        return _BEYOND
    if not us or us.adjusted() < -4:  # below half a ns; its exponent may be too small to compute with
        return 0
    if us.adjusted() > 15 or abs(us) > _MOST_US:
        return _BEYOND
    return int(_EXACT.multiply(us, 1000).to_integral_value(ROUND_HALF_EVEN, _EXACT))


_NUMBERS: tuple[tuple[type, _ToNs], ...] = ((int, _from_ints), (float, _from_floats), (Decimal, _from_decimals))


@cache
def _decoder_of(number: type) -> msgspec.json.Decoder[list[Event]]:
    """Returns the decoder of events whose times are of this type. It is made when it is first used: that takes 1 ms."""
    return json_decoder(cast("type[list[Event]]", GenericAlias(list, (event_type(number),))))
