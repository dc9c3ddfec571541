"""The note of a virtual run's timeline on kernels of several streams: whether they ran at the same time."""

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
from unstall.virtual.simulation.recipes import EnginePart
from unstall.virtual.simulation.simulate import Simulation

_GAIN = 0.05
"""Which part of their time kernels of several streams must save by running at the same time. If
they save less, the note says that streams gain nothing.
"""


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Kernels of several streams that overlap, or of which one begins when another ends, so that
    there is no pause.

    Attributes:
        rows: The rows of these kernels in `Ran`.
        together_ns: The time from the first start to the last end.
    """

    rows: I64
    together_ns: int


def streams_note(simulation: Simulation, stacks: Sequence[Stack], folder: str) -> str | None:
    """Returns the note on kernels of several streams: whether they ran at the same time, or waited
    for each other because each fills the device. It names the kernel that took most time, and its
    line.

    Returns None if no kernels of two streams overlapped or followed each other without a pause. Kernels of NCCL do not
    count: in the simulation they take nothing from other kernels, and last until other ranks have come.
    `stacks` has the call stacks of the log, by number. `folder` is the folder in which the program
    was started.
    """
    ran, ops = simulation.history.ran.whole(), simulation.actions.recipes.ops
    kernels = np.flatnonzero((ops.kind[ran.op] == DeviceKind.KERNEL) & (ops.part[ran.op] == EnginePart.PROCESSORS))
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
    took = ran.end[rows] - ran.start[rows]  # less than the duration if a kernel repeats another one
    alone_ns = int(np.minimum(ops.duration[ran.op[rows]], took).sum())
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
    """Yields the groups of kernels of one device that overlap or follow each other without a pause.

    A kernel that waits for free multiprocessors begins in the very nanosecond in which another one
    ends. One that waits for its own stream, or for an event, begins later.
    """
    rows = rows[np.argsort(start[rows], kind="stable")]
    latest = np.maximum.accumulate(end[rows])
    firsts = np.flatnonzero(np.append(True, start[rows[1:]] > latest[:-1]))
    for first, until in zip(firsts.tolist(), [*firsts[1:].tolist(), len(rows)], strict=True):
        met = rows[first:until]
        if len(met) > 1 and (stream[met] != stream[met[0]]).any():
            yield _Meeting(met, int(latest[until - 1] - start[met[0]]))


def _longest(simulation: Simulation, rows: I64, stacks: Sequence[Stack], folder: str) -> str:
    """Returns a sentence on the kernel that takes most time in all. Launches of one kernel from one
    call stack are added up. The sentence says which part of the device the longest of these
    launches uses.

    `rows` are the rows of `Ran` that are considered.
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
