"""Takes the recorder's overhead out of a program."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.replay.program import Code, Program, Recorded
from unstall.timeline.columns import I64, Bool, Recorder
from unstall.timeline.grouping import groups, union


class RecorderCost(msgspec.Struct, frozen=True):
    """What recording one event costs, in ns.

    Attributes:
        operator: Host time for an operator.
        frame: Host time for a Python frame.
        call: Host time for a call of CUDA.
        launch: Further host time for a call that launches.
        node: Further host time for each op of a CUDA graph, in the call that launches the graph.
        op: Device time for an op, between it and the op before it on its stream.
    """

    operator: int
    frame: int
    call: int
    launch: int
    node: int
    op: int


USUAL = RecorderCost(operator=2400, frame=350, call=1500, launch=1500, node=900, op=200)
"""What recording costs with torch.profiler, with or without stacks."""

USUAL_OF: dict[Recorder | None, RecorderCost] = {
    None: USUAL,
    # Frames of the line clock cost some 60 ns each, too little to model.
    "torch": replace(USUAL, frame=0),
    # 2.5 to 6 µs per launch in all, in paired runs of three programs on an H200 (docs/recording.md). The part within
    # the call was not measured separately. Per node of a graph: 1.1 to 1.8 µs in recordings of seven models' graphs on
    # an H100, 0.7 to 1.0 µs in graphs of additions (`python -m benchmarks.graph_nodes`).
    "cupti": RecorderCost(operator=0, frame=0, call=1200, launch=3100, node=1200, op=200),
    "virtual": RecorderCost(operator=0, frame=0, call=0, launch=0, node=0, op=0),  # its clock leaves overhead out
}
"""What recording usually costs, for each of unstall's recorders. The key None stands for any other recorder."""

LEAST_ERROR = 0.03
"""How far the step time may be off after the usual overhead is taken out, as a share of it, if the
device limits the step. In 9 of 10 such runs it is off by no more (benchmarks/whatif.py).
"""
USUAL_ERROR = 0.35
"""How far the host's time may be off after the usual overhead of torch.profiler is taken out, as a
share of it. In 9 of 10 runs that the host limits and that the overhead was not fitted to, it is off
by no more (benchmarks/whatif.py --fit).
"""
USUAL_ERROR_OF: dict[Recorder | None, float] = {
    **dict.fromkeys((None, "torch"), USUAL_ERROR),
    "cupti": 0.15,
    "virtual": 0.0,
}
"""How far the host's time may be off after the usual overhead is taken out, as a share of it, for
each recorder.

The recorder `cupti` adds up to a quarter to a step that the host limits. The estimate of that may
be wrong by half (docs/recording.md).
"""

_PAUSE_TIMES, _PAUSE_NS = 4, 300_000
_LEAST_WORK, _LEAST_CALL = 0.15, 0.25  # of the recorded time


def undistort(program: Program, scale: float = 1.0, cost: RecorderCost = USUAL) -> Program:
    """Returns the program without the recorder's overhead: `scale` times what `cost` says for each recorded event."""
    do, ops = program.instructions, program.ops
    events = do.recorded.astype(np.float64)
    on_work = scale * (
        cost.operator * events[:, Recorded.OPERATOR]
        + cost.frame * events[:, Recorded.FRAME]
        + cost.call * events[:, Recorded.CALL]
    )
    launches = do.code == Code.LAUNCH
    on_call = scale * (cost.launch * events[:, Recorded.LAUNCH] + cost.node * events[:, Recorded.NODE])
    # The part of a launching call after its ops have arrived is a separate instruction, and shares the overhead.
    rest = np.flatnonzero(launches[:-1] & do.goes_on[1:] & (do.code[1:] == Code.CALL))
    on_call[rest + 1] = np.minimum(on_call[rest], do.call[rest + 1] * (1 - _LEAST_CALL))
    on_call[rest] -= on_call[rest + 1]
    call = _less(do.call, on_call, _LEAST_CALL)
    gap = np.where(ops.gap > 0, np.maximum(ops.gap - round(min(scale, 1.0) * cost.op), ops.gap // 4), ops.gap)
    return replace(
        program,
        instructions=replace(do, work=_less(do.work, on_work, _LEAST_WORK), call=call),
        ops=replace(ops, gap=gap),
    )


def own_work(program: Program, since: I64, called: I64, own: tuple[I64, I64]) -> I64:
    """Returns, for each instruction, how much of the host's work before it is the recorder's own,
    in ns. The recorder works, for example, to make room for new events.

    The timeline does not say on which thread. It is taken to be a thread that made no call for as
    long as the work took. If there are several, it is the one whose next call comes first.

    Args:
        program: The program.
        since: For each instruction, when the previous call on its thread ended in the recording, in
            ns.
        called: For each instruction, when its call began in the recording, in ns.
        own: `(starts, ends)` of the recorder's work, in ns.
    """
    do = program.instructions
    begun, done = union(*own)
    row, soonest = np.full(len(begun), -1), np.full(len(begun), np.iinfo(np.int64).max)
    for _, mine in groups(do.thread):
        start, before = np.maximum.accumulate(called[mine]), since[mine]
        at = np.minimum(np.searchsorted(start, done), len(mine) - 1)
        after = start[at] - done
        between = (after >= 0) & (before[at] <= begun) & (after < soonest)
        row[between], soonest[between] = mine[at[between]], after[between]
    found = row >= 0
    spent = np.bincount(row[found], (done - begun)[found], len(do))
    return np.minimum(spent, do.work).astype(np.int64)


def without_pauses(program: Program, own: I64 | None = None, kept: Bool | None = None) -> tuple[Program, int]:
    """Takes pauses and the recorder's own work out of a program.

    A pause is work that took far longer in one step than in all others, such as a first use or a
    garbage collection. Only steps with the same instructions are compared. If there are just two
    such steps, pauses are looked for only in the earlier one, in which the recording began.

    Args:
        program: The program.
        own: For each instruction, how much of the host's work before it is the recorder's own, in
            ns. None if that is unknown.
        kept: A mask of the instructions before which the host's work stays as it is, such as data
            loading.

    Returns:
        `(program, pauses_ns)`: the changed program, and the total length of the pauses.
    """
    do = program.instructions
    work, call, left_out = do.work - (0 if own is None else own), do.call.copy(), 0
    names = do.code.astype(np.int64) * (int(do.stream.max(initial=0)) + 2) + do.stream
    spans = [np.arange(start, end + 1) for start, end in zip(program.step_starts, program.step_ends, strict=True)]
    alike = [rows for rows in spans if np.array_equal(names[rows], names[spans[-1]])]
    rows = np.stack(alike)[:, 1:]  # work between steps belongs to no step
    for times, recorded in ((work, do.work[rows]), (call, do.call[rows])) if len(rows) > 1 else ():
        usual = np.sort(times[rows], axis=0)[-2]  # the longest of all but one
        # The recorder's own work also slows what follows: it evicts the program from the caches.
        longer = recorded > np.maximum(_PAUSE_TIMES * usual, usual + _PAUSE_NS)
        if len(rows) == 2:
            longer[1] = False
        if kept is not None:
            longer &= ~kept[rows]
        left_out += int(np.maximum(times[rows] - usual, 0)[longer].sum())
        times[rows] = np.where(longer, usual, times[rows])
    return replace(program, instructions=replace(do, work=work, call=call)), left_out


def _less(times: I64, cost: np.ndarray, least: float) -> I64:
    less: I64 = np.maximum(times - cost, times * least).astype(np.int64)
    return less
