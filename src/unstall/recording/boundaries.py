"""Step boundaries of all sources, noted while a recording is active. Which of them separate the steps is decided when
the recording has ended.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from unstall.guest.step_source import StepSource, StepSources
from unstall.recording.journal import Journal

BLOCK = "block"
"""What a journal (a recording's file of events) has in place of a kind of boundaries, if there were none."""

StepsAmong: TypeAlias = Callable[[str, Sequence[int], Sequence[int]], tuple[list[int], int]]
"""A function of the kind of a source, the times of its boundaries, and the times at which its loops ended, all in ns.
It returns the times in ns of the boundaries of steps, and how many of these steps are for warm-up.
"""


class Boundaries:
    """The step boundaries and ends of loops that a recording has seen, by their source."""

    def __init__(self) -> None:
        self._boundaries: list[tuple[StepSource, int, int]] = []  # (source, time, thread)
        self._loop_ends: list[tuple[StepSource, int]] = []  # (source, time)

    def __len__(self) -> int:
        """The number of boundaries, without the ends of loops."""
        return len(self._boundaries)

    @property
    def loop_ends(self) -> int:
        """The number of ends of loops."""
        return len(self._loop_ends)

    def add(self, source: StepSource, at_ns: int) -> None:
        """Notes a step boundary that `source` has set in the current thread, at the time `at_ns`."""
        self._boundaries.append((source, at_ns, threading.get_native_id()))

    def end_loop(self, source: StepSource, at_ns: int) -> None:
        """Notes that a loop over the items of `source` has ended at the time `at_ns`."""
        self._loop_ends.append((source, at_ns))

    def leader(self) -> StepSource | None:
        """Returns the source whose boundaries separate the steps. Returns None if there are no boundaries."""
        sources = StepSources()
        for source, _, _ in self._boundaries:
            sources.add(source)
        return sources.leader_in_hindsight()

    def write_steps(self, journal: Journal, leader: StepSource | None, steps_among: StepsAmong) -> None:
        """Writes the steps to a journal: the entries `mark`, `loop_end` and `recorded`, which the module `session`
        describes.

        Args:
            journal: The recording's file of events.
            leader: The source whose boundaries separate the steps, or None if there is none.
            steps_among: Decides which times separate steps.
        """
        if leader is None:
            journal.write("recorded", by=BLOCK, steps=0, settling=0)
            return
        times = [at_ns for source, at_ns, _ in self._boundaries if source == leader]
        ((thread, _),) = Counter(thread for source, _, thread in self._boundaries if source == leader).most_common(1)
        loop_ends = [at_ns for source, at_ns in self._loop_ends if source == leader]
        boundaries, settling = steps_among(leader.kind, times, loop_ends)
        for number, at_ns in enumerate(boundaries):
            journal.write("mark", at=at_ns, kind=leader.kind, step=number, thread=thread)
        for at_ns in loop_ends:
            journal.write("loop_end", at=at_ns)
        journal.write("recorded", by=leader.kind, steps=len(boundaries) - 1 - settling, settling=settling)
