"""What a `prefetch` did, and what that gained."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from unstall.figures import counted, duration, share, size
from unstall.fix.tensors.accelerator import milliseconds
from unstall.fix.wrapped import Printed

_LATE = 4  # copies that are let be before the device is asked whether they have ended


@dataclass(frozen=True, slots=True)
class PrefetchStats(Printed):
    """Over all that was iterated so far."""

    batches: int
    bytes: int  # copied to the device
    fetch_ns: int  # in the loader
    stage_ns: int  # into pinned memory, and to queue the copy
    copy_ns: int  # on the device's copy engine
    waited_ns: int  # the program, for a batch
    stalled_ns: int  # the program's stream, for a copy
    depth: int  # batches ahead at the most; 0: none
    note: str  # why it is as it is

    @property
    def hidden_ns(self) -> int:
        """Of fetching, staging and copying, what neither the program nor its stream waited for."""
        return max(0, self.fetch_ns + self.stage_ns + self.copy_ns - self.waited_ns - self.stalled_ns)

    @property
    def overlap(self) -> float:
        """`hidden_ns` as a part of all that could be hidden: 1 where nothing waited."""
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
    """Counts that iterations add to. The producer adds to none of them: batches carry theirs."""

    batches: int = 0
    bytes: int = 0
    fetch_ns: int = 0
    stage_ns: int = 0
    copy_ns: int = 0
    waited_ns: int = 0
    stalled_ns: int = 0
    tensors: int = 0  # in batches
    empty: str | None = None  # the type of a batch that had none
    dry: int = 0  # batches in a row for which the device was waiting when they came; below 0: was not
    beside_ns: list[int] = field(default_factory=list)  # between batches that were fetched in the program's thread
    ahead_ns: list[int] = field(default_factory=list)  # between batches that were fetched ahead
    _copies: deque[tuple[Any, Any, Any]] = field(default_factory=deque)

    def note_copy(self, needed: Any, start: Any, end: Any) -> None:
        """Events: when the program's stream comes to where it needs the batch, and around its copy.

        The first is recorded once the program has the batch: before that the program waits, and not its stream for a
        copy. None where the copy had ended by then.
        """
        self._copies.append((needed, start, end))
        if len(self._copies) > _LATE:
            self.settle(2)

    def settle(self, at_most: int | None = None) -> None:
        """Adds up what copies took, of those that have ended."""
        while self._copies and at_most != 0:
            needed, start, end = self._copies[0]
            if not (end.query() and (needed is None or needed.query())):
                return
            self._copies.popleft()
            self.copy_ns += int(milliseconds(start, end) * 1e6)
            if needed is not None:
                self.stalled_ns += max(0, int(milliseconds(needed, end) * 1e6))
            at_most = None if at_most is None else at_most - 1
