"""`DeviceOps`: the ops that the device ran for calls of a function, as CUPTI or the virtual GPU recorded them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from unstall.timeline.columns import I8, I64, Bool


class StreamStep(IntEnum):
    """What one CUDA call does to the order of work on a stream."""

    OP = 0  # work is put on it
    RECORD = 1  # an event is recorded on it
    WAIT = 2  # it is made to wait for an event
    HOST_WAIT = 3  # the host waits for the stream; stream -1: for all streams


class StreamLink(NamedTuple):
    """One effect of a CUDA call on the order of work on a stream.

    Attributes:
        call: The index of the call of the measured function during which the CUDA call was made.
        step: The kind of effect.
        stream: The stream.
        event: The event, or 0 if the CUDA call has none.
    """

    call: int
    step: StreamStep
    stream: int
    event: int = 0


class HostWait(NamedTuple):
    """A wait of the host for the device, within a call of the measured function. `place` is the
    `file:line` of the wait, or None if the line is not known.
    """

    call: int
    ns: int
    place: str | None


class DriverMemory(NamedTuple):
    """An allocation or a free of memory by the driver, within a call of the measured function.
    `place` is the `file:line` from which it came, or None if the line is not known.
    """

    call: int
    what: str
    place: str | None


@dataclass(frozen=True, eq=False, slots=True)
class DeviceOps:
    """The device ops of several calls of a function, as columns with one row per op. In the column
    `call` is the index of the function's call that launched the op, or -1 if none of the calls
    launched it.
    """

    calls: int
    call: I64
    start: I64
    end: I64
    stream: I64
    kind: I8  # DeviceKind
    direction: I8  # CopyDirection
    bytes: I64
    graph: Bool  # whether the op was launched by a CUDA graph
    place: tuple[str | None, ...]  # by op
    main_stream: int  # the stream on which the calls are made
    links: tuple[StreamLink, ...] = ()
    waits: tuple[HostWait, ...] = ()
    taken: tuple[DriverMemory, ...] = ()

    def busy_ns(self) -> I64:
        """Returns, for each call of the function, the time in ns in which at least one of the
        call's ops ran on the device, as an array of shape (calls,).
        """
        order = np.lexsort((self.start, self.call))
        order = order[self.call[order] >= 0]
        busy = np.zeros(self.calls, np.int64)
        if not len(order):
            return busy
        call, start, end = self.call[order], self.start[order], self.end[order]
        # Each call's times are moved beyond all earlier calls', so that one running maximum serves all.
        shift = call * (int(end.max()) - int(start.min()) + 1)
        begin, reach = start + shift, np.maximum.accumulate(end + shift)
        covered = np.concatenate(([np.iinfo(np.int64).min], reach[:-1]))
        np.add.at(busy, call, np.maximum(0, end + shift - np.maximum(begin, covered)))
        return busy

    def span_ns(self) -> I64:
        """Returns, for each call of the function, the time in ns from the start of its first op to
        the end of its last op, as an array of shape (calls,). The time is 0 for a call without ops.
        """
        mine = self.call >= 0
        first = np.full(self.calls, np.iinfo(np.int64).max)
        last = np.full(self.calls, np.iinfo(np.int64).min)
        np.minimum.at(first, self.call[mine], self.start[mine])
        np.maximum.at(last, self.call[mine], self.end[mine])
        return np.where(last > first, last - first, 0)

    def ops_per_call(self) -> float:
        """Returns the mean number of kernels, copies and memsets per call of the function."""
        return float((self.call >= 0).sum()) / max(1, self.calls)

    def escaped_streams(self) -> set[int]:
        """Returns the streams with work that a call of the function leaves unfinished: when the
        call has ended, neither its main stream nor the host has waited for this work.
        """
        escaped: set[int] = set()
        for number in {link.call for link in self.links if link.call >= 0}:
            escaped |= _left_alone([link for link in self.links if link.call == number], self.main_stream)
        return escaped


def _left_alone(links: list[StreamLink], main: int) -> set[int]:
    """Returns the streams with work for which neither the stream `main` nor the host waits.

    Each stream A has a vector clock. The clock's entry for a stream B is the number of ops of B
    that end before the next op of A begins.
    """
    before: dict[int, dict[int, int]] = {}
    recorded: dict[int, dict[int, int]] = {}
    done: dict[int, int] = {}
    for link in links:
        clock = before.setdefault(link.stream, {})
        if link.step is StreamStep.OP:
            clock[link.stream] = clock.get(link.stream, 0) + 1
        elif link.step is StreamStep.RECORD:
            recorded[link.event] = dict(clock)
        elif link.step is StreamStep.WAIT:
            _raise(clock, recorded.get(link.event, {}))
        else:
            waited = before if link.stream == -1 else {link.stream: clock}
            for each in recorded.get(link.event, {}), *waited.values():
                _raise(done, each)
    _raise(done, before.get(main, {}))
    return {stream for stream, clock in before.items() if clock.get(stream, 0) > done.get(stream, 0)} - {main}


def _raise(clock: dict[int, int], to: dict[int, int]) -> None:
    for stream, count in to.items():
        clock[stream] = max(clock.get(stream, 0), count)
