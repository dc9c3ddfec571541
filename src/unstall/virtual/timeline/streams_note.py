"""Writes a timeline's note about kernels of several streams. The note says whether the kernels ran concurrently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unstall.figures import counted, duration, share
from unstall.locate.kernel_names import plain
from unstall.replay.program import WHOLE
from unstall.timeline.columns import I64, DeviceKind
from unstall.timeline.grouping import groups
from unstall.virtual.log import Stack
from unstall.virtual.own_place import own_place
from unstall.virtual.simulation.simulate import Simulation

_GAIN = 0.05
"""The least fraction of their time that kernels of several streams must save by running concurrently. If they save
less, the note says that streams gain nothing.
"""


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A group of kernels on several streams, with no pause between the kernels. The kernels overlap, or one kernel
    begins when another kernel ends.

    Attributes:
        rows: The rows in `Ran` that have the kernels of the group.
        together_ns: The time from the first start of a kernel to the last end of a kernel.
    """

    rows: I64
    together_ns: int


def streams_note(simulation: Simulation, stacks: Sequence[Stack], folder: str) -> str | None:
    """Returns a note about kernels of several streams. The note says whether the kernels ran concurrently, or waited
    for each other because each kernel fills the device.

    The note names the kernel that took the longest time, and its line. Returns None if no kernels of two streams
    overlapped or followed each other without a pause. `stacks` has the stacks of the log.
    """
    ran, ops = simulation.history.ran.whole(), simulation.actions.recipes.ops
    kernels = np.flatnonzero(ops.kind[ran.op] == DeviceKind.KERNEL)
    if (ran.stream[kernels] == ran.stream[kernels[:1]]).all():
        return None
    devices = np.array([device for device, _ in simulation.streams.places])[ran.stream[kernels]]
    meetings = [
        meeting for _, mine in groups(devices) for meeting in _meetings(kernels[mine], ran.start, ran.end, ran.stream)
    ]
    if not meetings:
        return None
    rows = np.concatenate([meeting.rows for meeting in meetings])
    together_ns = sum(meeting.together_ns for meeting in meetings)
    alone_ns = int(ops.duration[ran.op[rows]].sum())
    streams = counted(len(np.unique(ran.stream[rows])), "stream")
    if alone_ns - together_ns >= _GAIN * alone_ns:
        told = f"kernels of {streams} ran side by side, since they leave each other room"
    else:
        told = (
            f"kernels of {streams} wait for each other, and streams gain nothing, since they leave each other no room"
        )
    return (
        f"{told}: in the whole run they took {duration(together_ns)} together, and take {duration(alone_ns)} one after "
        f"the other. {_longest(simulation, rows, stacks, folder)}"
    )


def _meetings(rows: I64, start: I64, end: I64, stream: np.ndarray) -> Iterator[_Meeting]:
    """Yields the groups of kernels on one device that overlap or follow each other without a pause. A kernel that waits
    for free multiprocessors begins in the same nanosecond in which another kernel ends. A kernel that waits for its own
    stream, or for an event, begins later.
    """
    rows = rows[np.argsort(start[rows], kind="stable")]
    latest = np.maximum.accumulate(end[rows])
    firsts = np.flatnonzero(np.append(True, start[rows[1:]] > latest[:-1]))
    for first, until in zip(firsts.tolist(), [*firsts[1:].tolist(), len(rows)], strict=True):
        met = rows[first:until]
        if len(met) > 1 and (stream[met] != stream[met[0]]).any():
            yield _Meeting(met, int(latest[until - 1] - start[met[0]]))


def _longest(simulation: Simulation, rows: I64, stacks: Sequence[Stack], folder: str) -> str:
    """Returns a sentence about the kernel that takes the most time in total. Adds up the times of all launches that
    have the same kernel and the same stack. `rows` are the rows of `Ran` to consider. The sentence also has the
    fraction of the device that the longest launch uses.
    """
    history, recipes = simulation.history, simulation.actions.recipes
    ran, done, happened = history.ran.whole(), history.done.whole(), history.happened.whole()
    op = ran.op[rows]
    name, length = recipes.ops.name[op], recipes.ops.duration[op]
    stack = happened.stack[done.record[ran.instruction[rows]]]
    _, kernel = np.unique(np.stack((name, stack)), axis=1, return_inverse=True)
    mine = np.flatnonzero(kernel == np.argmax(np.bincount(kernel, weights=length)))
    longest = mine[np.argmax(length[mine])]
    place = own_place(stacks[stack[longest]] if stack[longest] >= 0 else (), folder)
    where = f" at {place[0]}" if place else ""
    used = share(int(recipes.ops.used[op[longest]]), WHOLE)
    return f"The longest, {plain(recipes.names[name[longest]])}{where}, uses {used} of the device"
