"""Statistics of a `prefetch`: the work that the `prefetch` did, and the time that the `prefetch` saved."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import torch

from unstall.figures import counted, duration, share, size
from unstall.fix.tensors.accelerator import milliseconds
from unstall.fix.wrapped import Printed
from unstall.guest.instants import Span, TotalTime

_LATE = 4  # pending copies that are kept before their events are queried


@dataclass(frozen=True, slots=True)
class PrefetchStats(Printed):
    """Statistics of a `prefetch`. Numbers, bytes and times are sums over all batches that the program has received so
    far. Times are in ns.

    Attributes:
        batches: The number of batches.
        bytes: The bytes that were copied to the device.
        fetch_ns: The time that the loader took.
        stage_ns: The host's time for copying batches into pinned memory and for starting the copies to the device.
        copy_ns: The time of the copies to the device, on the device.
        waited_ns: The time for which the program waited for batches.
        stalled_ns: The time for which the program's stream waited for copies.
        depth: The largest number of batches that are fetched ahead. 0: none.
        note: Why `depth` was chosen.
    """

    batches: int
    bytes: int
    fetch_ns: int
    stage_ns: int
    copy_ns: int
    waited_ns: int
    stalled_ns: int
    depth: int
    note: str

    @property
    def hidden_ns(self) -> int:
        """The time that the program saved, in ns: the time of fetching, staging and copying, minus the time for which
        the program or its stream waited for batches."""
        return max(0, self.fetch_ns + self.stage_ns + self.copy_ns - self.waited_ns - self.stalled_ns)

    @property
    def overlap(self) -> float:
        """The share of the time of fetching, staging and copying that the program saved, from 0 to 1. It is 1 if
        neither the program nor its stream waited for batches."""
        whole = self.fetch_ns + self.stage_ns + self.copy_ns
        return self.hidden_ns / whole if whole else 1.0

    @property
    def text(self) -> str:
        whole = self.fetch_ns + self.stage_ns + self.copy_ns
        lines = [f"{counted(self.batches, 'batch')}, {size(self.bytes)} to the device; {self.note}"]
        if whole:
            lines.append(
                f"  fetching {duration(self.fetch_ns)}, staging {duration(self.stage_ns)}, "
                f"copying {duration(self.copy_ns)}; {share(self.hidden_ns, whole)} of it hidden"
            )
            lines.append(
                f"  the program waited {duration(self.waited_ns)}, its stream {duration(self.stalled_ns)} for copies"
            )
        return "\n".join(lines)


@dataclass(slots=True)
class PrefetchCounters:
    """The sums from which the statistics of a `prefetch` are made. Only the thread that iterates over the batches
    changes the sums. A thread that fetches ahead stores the times of each batch in the batch."""

    batches: int = 0
    bytes: int = 0
    fetching: TotalTime = field(default_factory=TotalTime)
    staging: TotalTime = field(default_factory=TotalTime)
    waiting: TotalTime = field(default_factory=TotalTime)
    copy_ns: int = 0
    stalled_ns: int = 0
    tensors: int = 0  # in batches
    empty: str | None = None  # the type of a batch that had no tensors
    dry: int = 0  # batches in a row that the device waited for; if negative, batches in a row that it did not wait for
    beside: list[Span] = field(default_factory=list)  # between batches fetched by the program's thread
    ahead: list[Span] = field(default_factory=list)  # between batches fetched ahead
    _copies: deque[tuple[torch.Event | None, torch.Event, torch.Event]] = field(default_factory=deque)

    def note_copy(self, needed: torch.Event | None, start: torch.Event, end: torch.Event) -> None:
        """Stores the events of a batch's copy, so that the copy can be timed later.

        Args:
            needed: An event that is recorded on the program's stream when the program receives the batch, before the
                program's stream waits for the copy. None if the copy had already ended.
            start: An event that is recorded before the copy, on the stream of the copy.
            end: An event that is recorded after the copy, on the stream of the copy.
        """
        self._copies.append((needed, start, end))
        if len(self._copies) > _LATE:
            self.add_copies(2)

    def add_copies(self, at_most: int | None = None) -> None:
        """Adds the times of finished copies to the sums. Adds at most `at_most` copies (None: no limit)."""
        while self._copies and at_most != 0:
            needed, start, end = self._copies[0]
            if not (end.query() and (needed is None or needed.query())):
                return
            self._copies.popleft()
            self.copy_ns += int(milliseconds(start, end) * 1e6)
            if needed is not None:
                self.stalled_ns += max(0, int(milliseconds(needed, end) * 1e6))
            at_most = None if at_most is None else at_most - 1
