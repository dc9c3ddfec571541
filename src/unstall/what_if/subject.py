"""`Subject`: a run and its `Program`, which edits change."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from unstall.locate.kinds import is_communication, is_data_loading
from unstall.locate.places import Places
from unstall.locate.startup import startup_rows
from unstall.locate.steps import Steps
from unstall.locate.threads import launching_threads
from unstall.locate.torch_code import Stretches
from unstall.replay.program import Code, Program
from unstall.timeline.columns import I32, I64, Bool, Timeline
from unstall.timeline.grouping import groups, union
from unstall.what_if.place import EditPlace
from unstall.what_if.rewrites import neutral

SYNCS = (Code.SYNC_STREAM, Code.SYNC_DEVICE, Code.SYNC_EVENT)
"""The codes of instructions in which the host waits for the device."""


class Subject(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A run and its `Program`. Edits change the program.

    An edit returns a new `Subject`. It removes no instructions and no ops, so their numbers stay
    valid. Instead, it makes them take no time.

    Attributes:
        timeline: The run.
        places: The user's source line of each host event.
        steps: The steps of the run.
        program: The run's program, with all edits so far.
        notes: What edits could not do, and why, one sentence each.
        graphs: The rows of `timeline.host` whose launches edits have turned into CUDA graphs.
        made: The rows of `timeline.device`, copies, that edits have turned into kernels.
    """

    timeline: Timeline
    places: Places
    steps: Steps
    program: Program
    notes: tuple[str, ...] = ()
    graphs: I32 = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    made: I32 = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    def with_program(self, program: Program, *notes: str) -> Subject:
        """Returns the same run with another program. `notes` are added to the notes of earlier edits."""
        return replace(self, program=program, notes=(*self.notes, *notes))

    def differs(self, other: Subject) -> bool:
        """Returns whether the programs of two subjects of the same run differ."""
        mine, theirs = self.program, other.program
        return mine is not theirs and not all(
            np.array_equal(getattr(getattr(mine, table), name), getattr(getattr(theirs, table), name))
            for table in ("instructions", "ops")
            for name in getattr(mine, table).__struct_fields__
        )

    def host_rows(self, place: EditPlace | None) -> Bool:
        """Returns a mask of `timeline.host`: the events at `place`, or all events if `place` is None."""
        if place is None:
            return np.ones(len(self.timeline.host), dtype=np.bool_)
        return place.chosen(self.places)

    def at(self, place: EditPlace | None) -> Bool:
        """Returns a mask of the instructions whose host events are at `place`. If `place` is None,
        all instructions that have a host event are in the mask.
        """
        return self.instructions_of(self.host_rows(place))

    def instructions_of(self, rows: Bool) -> Bool:
        """Returns a mask of the instructions that belong to the host events in `rows`, which is a
        mask of `timeline.host`.
        """
        host = self.program.instructions.host
        chosen = host >= 0
        chosen[chosen] = rows[host[chosen]]
        return chosen

    @cached_property
    def recorded_span(self) -> tuple[I64, I64]:
        """`(starts, ends)`: when the call of each instruction began and ended in the recording, in
        ns.

        If a call has become several instructions, its first instruction has the start and the end
        of the call. For each further one, start and end are both the end of the call. A wait for
        another thread (`Code.JOIN`) begins at the end of the last call on the waiting thread, or at
        0 if there is none.
        """
        host, do = self.timeline.host, self.program.instructions
        start, end = np.zeros(len(do), dtype=np.int64), np.zeros(len(do), dtype=np.int64)
        known = do.host >= 0
        start[known], end[known] = host.start[do.host[known]], host.end[do.host[known]]
        start = np.where(do.goes_on, end, start)
        for marks, times in ((self.program.step_starts, self.steps.start), (self.program.step_ends, self.steps.end)):
            start[marks] = end[marks] = times
        joins = np.flatnonzero(do.code == Code.JOIN)
        end[joins] = end[do.target[joins]]
        for thread in np.unique(do.thread[joins]):
            mine = np.flatnonzero(do.thread == thread)
            waiting = np.flatnonzero(do.code[mine] == Code.JOIN)
            reach = np.maximum.accumulate(np.append(0, end[mine]))
            start[mine[waiting]] = reach[waiting]
        return start, end

    @cached_property
    def since(self) -> I64:
        """For each instruction, when the previous call on its thread ended in the recording, in ns."""
        do = self.program.instructions
        start, end = self.recorded_span
        since = np.zeros(len(do), dtype=np.int64)
        for _, mine in groups(do.thread):
            since[mine] = np.append(start[mine[0]] - do.work[mine[0]], np.maximum.accumulate(end[mine])[:-1])
        return since

    @cached_property
    def loads_data(self) -> Bool:
        """A mask of the instructions before which the host loads data, at least for a part of the time."""
        loads: Bool = self.share_of_work(is_data_loading(self.timeline)) > 0
        return loads

    def share_of_work(self, chosen: Bool, also: Stretches | None = None) -> NDArray[np.float64]:
        """Returns, for each instruction, which share of the host's work before it lies within the
        chosen host events, or within the stretches of its thread in `also`, from 0 to 1.

        `chosen` is a mask of `timeline.host`.
        """
        do, host = self.program.instructions, self.timeline.host
        rows = np.flatnonzero(chosen)
        starts, ends, thread = host.start[rows], host.end[rows], host.thread[rows]
        if also is not None:
            thread = np.concatenate((thread, also.thread))
            starts = np.concatenate((starts, also.start))
            ends = np.concatenate((ends, also.end))
        share = np.zeros(len(do), dtype=np.float64)
        for mine, begun, done in self._spans_by_thread(thread, starts, ends):
            start, before = self.recorded_span[0][mine], self.since[mine]
            covered = _covered(begun, done, start) - _covered(begun, done, np.minimum(before, start))
            share[mine] = np.clip(covered / np.maximum(start - before, 1), 0, 1)
        return share

    def share_of_call(self, chosen: Bool) -> NDArray[np.float64]:
        """Returns, for each instruction, which share of its call lies within the chosen host
        events, from 0 to 1.

        `chosen` is a mask of `timeline.host`. If a call has become several instructions, each of
        them has the share of the whole call.
        """
        do = self.program.instructions
        share = np.zeros(len(do), dtype=np.float64)
        start, end = self.recorded_span
        known = do.host >= 0
        start = start.copy()
        start[known] = self.timeline.host.start[do.host[known]]
        rows, host = np.flatnonzero(chosen), self.timeline.host
        for mine, begun, done in self._spans_by_thread(host.thread[rows], host.start[rows], host.end[rows]):
            covered = _covered(begun, done, end[mine]) - _covered(begun, done, start[mine])
            share[mine] = np.clip(covered / np.maximum(end[mine] - start[mine], 1), 0, 1)
        return share

    def faster(self, factor: float, work: NDArray[np.float64], call: NDArray[np.float64]) -> Subject:
        """Returns the run with parts of the host's time `factor` times as fast.

        Args:
            factor: How many times as fast these parts become.
            work: For each instruction, the share of the host's work before it that becomes faster.
            call: For each instruction, the share of its call that becomes faster.
        """
        do = self.program.instructions
        less = 1 - 1 / factor
        do = replace(
            do,
            work=np.rint(do.work * (1 - less * work)).astype(np.int64),
            call=np.rint(do.call * (1 - less * call)).astype(np.int64),
        )
        return self.with_program(replace(self.program, instructions=do))

    @cached_property
    def communication(self) -> Bool:
        """A mask of the program's ops that communicate with other GPUs."""
        chosen: Bool = is_communication(self.timeline)[self.program.ops.device]
        return chosen

    @cached_property
    def startup(self) -> Bool:
        """A mask of `timeline.host`: the events in which something is used for the first time, such
        as the loading of a module.
        """
        timeline, steps = self.timeline, self.steps
        ours = np.isin(timeline.host.thread, launching_threads(timeline, timeline.device.launch))
        chosen = np.zeros(len(timeline.host), dtype=np.bool_)
        chosen[startup_rows(timeline, ours, int(steps.start[1]) if len(steps) > 1 else None)] = True
        return chosen

    def cut(self, chosen: Bool, *, keep: Bool | None = None, spare: Bool | None = None) -> Program:
        """Returns the program without the chosen host events, and without all that happens in them.

        Args:
            chosen: A mask of `timeline.host`: the events to remove.
            keep: A mask of the instructions that stay in any case; None for no such instruction.
            spare: A mask of `timeline.host`: the events that stay and take their time even within a
                chosen event; None for no such event.
        """
        do = self.program.instructions
        known = np.flatnonzero(do.host >= 0)
        inside = np.zeros(len(do), dtype=np.bool_)
        inside[known] = self.within(do.host[known], chosen)
        share = self.share_of_work(chosen)
        if spare is not None:
            rows = np.flatnonzero(spare)
            stays = np.zeros(len(spare), dtype=np.bool_)
            stays[rows] = self.within(rows, chosen)
            share = np.maximum(share - self.share_of_work(stays), 0)
            inside[known] &= ~stays[do.host[known]]
        if keep is not None:
            inside &= ~keep
        program = neutral(self.program, inside)
        work = (do.work * (1 - share)).astype(np.int64)
        return replace(program, instructions=replace(program.instructions, work=work))

    def within(self, rows: I64 | I32, chosen: Bool) -> Bool:
        """Returns, for each host event in `rows`, whether it is chosen or begins within a chosen
        event of its thread.

        `rows` are rows of `timeline.host`, and `chosen` is a mask of it. A call that has become
        several instructions, such as a launch and a wait, has one start, which decides for all of
        them.
        """
        host = self.timeline.host
        result: Bool = chosen[rows]
        events = np.flatnonzero(chosen)
        by_thread = dict(groups(host.thread[events]))
        for thread, mine in groups(host.thread[rows]):
            if thread in by_thread:
                around = events[by_thread[thread]]
                begun, done = union(host.start[around], host.end[around])
                start, end = host.start[rows[mine]], host.end[rows[mine]]
                at = np.searchsorted(begun, start, side="right") - 1
                begun, done = begun[np.maximum(at, 0)], done[np.maximum(at, 0)]
                # A call around a chosen one may begin with it.
                result[mine] |= (at >= 0) & (start < done) & ((begun < start) | (end <= done))
        return result

    def _spans_by_thread(self, thread: I32, start: I64, end: I64) -> Iterator[tuple[I64, I64, I64]]:
        """Yields `(instructions, starts, ends)` for each thread of the program on which there are some of the given
        intervals, which may overlap.

        `instructions` are the numbers of the thread's instructions. `starts` and `ends` are the
        times that the thread's intervals cover, in ns. They do not overlap.
        """
        part = self.program.thread_of[thread]
        by_thread = dict(groups(part))
        for number, mine in groups(self.program.instructions.thread):
            if number in by_thread:
                given = by_thread[number]
                yield mine, *union(start[given], end[given])


def _covered(start: I64, end: I64, until: I64) -> I64:
    """Returns, for each time in `until`, how much of the time before it the intervals cover. They
    run from `start` to `end`, ascending, and do not overlap.
    """
    total = np.append(0, np.cumsum(end - start))
    at = np.searchsorted(start, until, side="right")
    last = np.maximum(at - 1, 0)
    result: I64 = np.where(at > 0, total[last] + np.minimum(until, end[last]) - start[last], 0)
    return result
