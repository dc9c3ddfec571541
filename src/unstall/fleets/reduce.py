"""Reduces a `Program` to what a replay of the whole job needs: what happens between collectives becomes a few
instructions.

Instructions and ops that nothing else depends on are merged. In a replay of the reduced program, each op and each
instruction that is kept has the same times as before. The boundaries of steps are kept.

A merged launch takes one place in a launch queue. If launch queues fill up in the recording, at most N launches are
merged into one, and a launch queue has 1/N of its places. N is the largest of 256, 64, 16 and 4 for which collectives,
steps and waits keep their times exactly. If there is no such N, launches are not merged. While a launch queue is full,
the time of a single launch may differ.

The mathematics: on one thread and one stream, a series of launches without a wait (a run) ends at max(t + A, r + B).
Here t is the thread's time when the run begins, and r is the time when the stream becomes free. The constants A and B
follow from the instructions of the run (max-plus algebra). So one launch with one op can stand for the run.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.replay.engine import replay
from unstall.replay.program import Code, Instructions, Ops, Program, Replayed
from unstall.timeline.columns import I64, Bool
from unstall.timeline.grouping import groups, is_one_of

_Table = TypeVar("_Table", Instructions, Ops)
_ON_STREAM = (Code.LAUNCH, Code.RECORD, Code.STREAM_WAIT, Code.SYNC_STREAM)
_PIECES = (256, 64, 16, 4)  # launches that become one where queues fill
_WAITS = (Code.SYNC_STREAM, Code.SYNC_DEVICE, Code.SYNC_EVENT, Code.JOIN)
_OF_TARGET = (Code.STREAM_WAIT, Code.SYNC_EVENT, Code.JOIN)


class Arrivals(msgspec.Struct, frozen=True, eq=False):
    """For each op of a reduced program, lower bounds of the time at which the op ends. In a reduced program, a run of
    launches is merged into one launch with one op.

    Let t be the thread's time when a run begins. The op that stands for the run ends no earlier than `t + host +
    device`. Each op of the run gives one such bound. `host` is the host's time from t until this op arrives at its
    stream. `device` is the device's time from the start of this op to the end of the run. Three bounds are kept: those
    of the first op, of the last op, and of the op that decided in the recording. Host and device are kept apart so that
    an edit can scale them by different factors.

    Attributes:
        host: An array of shape (ops, 3), in ns, of any type of integers. All 0 for ops that were not merged.
        device: An array of shape (ops, 3), in ns, of any type of integers. All 0 for ops that were not merged.
    """

    host: np.ndarray
    device: np.ndarray

    def ends(self, host: np.ndarray, device: np.ndarray) -> I64:
        """Returns, for each op, the latest of its lower bounds after the host's and the device's times are scaled, in
        ns from the thread's time when the run begins.

        Args:
            host: For each op, the factor by which the host's times are multiplied.
            device: For each op, the factor by which the device's times are multiplied.
        """
        ends = np.rint(self.host * host[:, None] + self.device * device[:, None]).max(axis=1)
        latest: I64 = ends.astype(np.int64)
        return latest


class Reduced(msgspec.Struct, frozen=True, eq=False):
    """A reduced program, in which runs of launches are merged into single launches, and the rows of the original
    program that its rows come from.

    For a merged run, `Instructions.host` and `Ops.device` of the reduced program are those of the last instruction or
    op of the run.

    Attributes:
        program: The reduced program.
        arrivals: For each op of the reduced program, lower bounds of the time at which the op ends.
        row_of: For each instruction of the original program, the index of its instruction in the reduced program, or of
            the instruction that it was merged into. -1 if it was left out.
        op_of: For each op of the original program, the index of its op in the reduced program, or of the op that it was
            merged into.
    """

    program: Program
    arrivals: Arrivals
    row_of: I64
    op_of: I64


def reduce(program: Program, keep: Bool) -> Reduced:
    """Reduces a program: merges instructions and ops on which no collective, no step boundary and no other thread or
    stream depends.

    Args:
        program: The program. Everything after its last step is left out.
        keep: A mask with one value for each op: True for the ops that must not be merged. These are the collectives.
    """
    program, keep = _until_last_step(program, keep)
    do = program.instructions
    code = do.code.copy()
    target = np.where(is_one_of(code, _OF_TARGET), do.target, -1)
    aimed_at = np.zeros(len(do), dtype=np.bool_)
    aimed_at[target[target >= 0]] = True
    code[(code == Code.RECORD) & ~aimed_at & (do.latency <= 0)] = Code.CALL
    marked = np.zeros(len(do), dtype=np.bool_)
    marked[program.step_starts] = marked[program.step_ends] = True
    joined = np.zeros(len(do), dtype=np.bool_)
    joined[do.target[code == Code.JOIN]] = True
    folds = (code == Code.CALL) & ~marked & ~joined
    do = replace(do, code=code, work=_with_folded(do, folds))
    program = replace(program, instructions=do)

    run = _runs(program, folds, joined | marked, keep)
    if not _fills_queues(program):
        return _merged(program, run, folds)
    recorded = replay(program)
    for length in _PIECES:
        fewer = replace(program, capacity=max(program.capacity // length, 1))
        reduced = _merged(fewer, _cut(run, length), folds)
        if _keeps_times(program, recorded, reduced, keep):
            return reduced
    return _merged(program, np.full_like(run, -1), folds)


def _cut(run: I64, length: int) -> I64:
    """Cuts runs of launches into pieces of at most `length` launches. Returns, for each instruction, the number of its
    piece, or -1. `run` has the number of each instruction's run, or -1."""
    rows = np.flatnonzero(run >= 0)
    order = rows[np.argsort(run[rows], kind="stable")]
    begins = np.diff(run[order], prepend=-1) != 0
    within = np.arange(len(order)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    piece = np.full_like(run, -1)
    piece[order] = np.cumsum(within % length == 0) - 1
    return piece


def _keeps_times(program: Program, recorded: Replayed, reduced: Reduced, keep: Bool) -> bool:
    """Returns whether a reduced program keeps the times of the original program: of the ops in the mask `keep`, of the
    step boundaries and of the host's waits.

    Args:
        program: The original program.
        recorded: A replay of the original program.
        reduced: The reduced program.
        keep: A mask with one value for each op of the original program.
    """
    times = replay(reduced.program)
    ops = reduced.op_of[keep]
    marks = np.concatenate(
        [program.step_starts, program.step_ends, np.flatnonzero(is_one_of(program.instructions.code, _WAITS))]
    )
    return (
        np.array_equal(recorded.op_start[keep], times.op_start[ops])
        and np.array_equal(recorded.op_end[keep], times.op_end[ops])
        and np.array_equal(recorded.end[marks], times.end[reduced.row_of[marks]])
    )


def _fills_queues(program: Program) -> bool:
    """Returns whether some launch in a replay of the program waits because its launch queue is full."""
    launches = int((program.instructions.code == Code.LAUNCH).sum())
    if launches <= program.capacity:
        return False
    with_room = replay(replace(program, capacity=launches))
    return not np.array_equal(replay(program).end, with_room.end)


def _until_last_step(program: Program, keep: Bool) -> tuple[Program, Bool]:
    do, ops = program.instructions, program.ops
    rows = int(program.step_ends[-1]) + 1
    count = int(do.ops[rows - 1])
    return (
        replace(program, instructions=_rows(do, slice(0, rows)), ops=_rows(ops, slice(0, count))),
        keep[:count],
    )


def _rows(table: _Table, rows: slice | I64) -> _Table:
    columns = {name: np.ascontiguousarray(getattr(table, name)[rows]) for name in table.__struct_fields__}
    return replace(table, **columns)


def _with_folded(do: Instructions, folds: Bool) -> I64:
    """Returns, for each instruction, the host's work before it, in ns. Calls in the mask `folds` are merged into the
    next instruction of their thread that is not in the mask. So their times are added to the work before that
    instruction."""
    work = do.work.copy()
    for _, mine in groups(do.thread):
        stays = np.flatnonzero(~folds[mine])
        time = np.append(0, np.cumsum(np.where(folds[mine], do.work[mine] + do.call[mine], 0)))
        work[mine[stays]] += np.diff(time[stays], prepend=0)
    return work


def _touches(program: Program, folds: Bool) -> tuple[I64, I64]:
    """Returns `(streams, rows)`: all pairs of a stream and an instruction that reads or changes the state of this
    stream. The pairs are sorted by stream, then by instruction. A sync of a device touches all of its streams. Only the
    last one before another instruction that touches the stream is returned."""
    do, ops = program.instructions, program.ops
    on = np.flatnonzero(is_one_of(do.code, _ON_STREAM) & ~folds)
    stream = np.concatenate([do.stream[on], ops.stream]).astype(np.int64)
    row = np.concatenate([on, program.launcher])
    sync = np.flatnonzero(do.code == Code.SYNC_DEVICE)
    device = do.stream[sync].astype(np.int64)  # -1: all of them
    size = len(do)
    by_device = np.sort((device + 1) * size + sync)
    begin = (program.device_of_stream[stream].astype(np.int64) + 1) * size
    synced = np.maximum(_last_before(by_device, begin + row) - begin, _last_before(sync[device < 0], row))
    pairs = np.concatenate([stream * size + row, (stream * size + synced)[synced >= 0]])
    pairs.sort(kind="stable")  # they come in a few sorted runs, which this sort merges
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    return pairs // size, pairs % size


def _last_before(ordered: I64, values: I64) -> I64:
    """Returns, for each value, the last element of `ordered`, which ascends, that is less. -1 if there is none."""
    last: I64 = np.append(ordered, -1)[np.searchsorted(ordered, values) - 1]
    return last


def _runs(program: Program, folds: Bool, ends_run: Bool, keep: Bool) -> I64:
    """Returns, for each instruction, the number of its run, or -1 if it is in no run. The launches of a run are merged
    into one launch."""
    do, ops, launcher = program.instructions, program.ops, program.launcher
    plain = (do.code == Code.LAUNCH) & (np.diff(do.ops, prepend=0) > 0)
    special = keep | (ops.engine >= 0) | (ops.share > 0) | (ops.stream != do.stream[launcher])
    # If an op waits for an op of another stream, it must be the first of its run. If it is waited for, the last.
    first_of_launch = np.diff(launcher, prepend=-1) != 0
    last_of_launch = np.append(launcher[1:] != launcher[:-1], True)[: len(ops)]
    followed = np.zeros(len(ops), dtype=np.bool_)
    followed[ops.after[ops.after >= 0]] = True
    special |= ((ops.after >= 0) & ~first_of_launch) | (followed & ~last_of_launch)
    plain[launcher[special]] = False
    opens, closes = np.zeros(len(do), dtype=np.bool_), ends_run.copy()
    opens[launcher[ops.after >= 0]] = True
    closes[launcher[followed]] = True

    streams, rows = _touches(program, folds)
    before = np.full(len(do), -1, dtype=np.int64)  # of a plain launch: who touched its stream last
    again = np.append(False, streams[1:] == streams[:-1])[: len(rows)]
    previous = np.where(again, np.append(-1, rows[:-1])[: len(rows)], -1)
    own = plain[rows]
    before[rows[own]] = previous[own]

    run = np.full(len(do), -1, dtype=np.int64)
    count = 0
    for _, every in groups(do.thread):
        mine = every[~folds[every]]
        last = np.append(-1, mine[:-1])[: len(mine)]
        goes_on = plain[mine] & (last >= 0) & (before[mine] == last) & ~opens[mine]
        goes_on &= np.append(False, plain[mine[:-1]] & ~closes[mine[:-1]])[: len(mine)]
        number = count + np.cumsum(plain[mine] & ~goes_on) - 1
        run[mine[plain[mine]]] = number[plain[mine]]
        count += int((plain[mine] & ~goes_on).sum())
    return run


def _merged(program: Program, run: I64, folds: Bool) -> Reduced:
    do, ops, launcher = program.instructions, program.ops, program.launcher
    in_run = np.flatnonzero(run >= 0)
    order = in_run[np.lexsort((in_run, run[in_run]))]  # a run's rows are of one thread, in its order
    first = np.flatnonzero(np.diff(run[order], prepend=-1))
    host = do.work + do.call
    elapsed = np.cumsum(host[order])
    begun = np.repeat(elapsed[first] - host[order][first], np.diff(np.append(first, len(order))))
    done = np.zeros(len(do), dtype=np.int64)
    done[order] = elapsed - begun  # from the start of the run to the end of the call

    # The runs' ops, in order: those of a run are neighbours.
    mine = np.flatnonzero(run[launcher] >= 0)
    mine = mine[np.lexsort((mine, run[launcher[mine]]))]
    of_run = run[launcher[mine]]
    op_first = np.flatnonzero(np.diff(of_run, prepend=-1))
    sizes = np.diff(np.append(op_first, len(mine)))
    row = launcher[mine]
    arrival = np.maximum(done[row] - do.call[row], done[row] + ops.latency[mine])
    gap = ops.gap[mine].copy()
    gap[op_first] = 0  # that before the first op stays a gap
    reach = np.cumsum(ops.duration[mine] + gap)
    whole = np.repeat(reach[np.append(op_first[1:], len(mine)) - 1] if len(mine) else reach, sizes)
    rest = whole - reach + ops.duration[mine]  # from the op's start to the end of the run
    ends = arrival + rest
    length = rest[op_first]
    latest = np.maximum.reduceat(ends, op_first) if len(mine) else ends
    decides = np.flatnonzero(ends == np.repeat(latest, sizes))
    decides = decides[np.unique(np.repeat(np.arange(len(sizes)), sizes)[decides], return_index=True)[1]]
    op_last = op_first + sizes - 1
    total = (elapsed - begun)[np.append(first[1:], len(order)) - 1] if len(order) else elapsed

    # Each run stands where its last launch stood.
    stays = np.ones(len(do), dtype=np.bool_)
    stays[folds] = False
    stays[in_run] = False
    run_row = order[np.append(first[1:], len(order)) - 1] if len(order) else order
    stays[run_row] = True
    rows = np.flatnonzero(stays)
    row_of = np.full(len(do), -1, dtype=np.int64)
    row_of[rows] = np.arange(len(rows))
    row_of[in_run] = row_of[run_row[run[in_run]]]

    op_stays = run[launcher] < 0
    op_stays[mine[op_last]] = True
    kept = np.flatnonzero(op_stays)
    op_of = np.full(len(ops), -1, dtype=np.int64)
    op_of[kept] = np.arange(len(kept))
    op_of[mine] = np.repeat(op_of[mine[op_last]], sizes)

    work, call = do.work.copy(), do.call.copy()
    work[run_row], call[run_row] = 0, total
    duration, latency, gaps = ops.duration.copy(), ops.latency.copy(), ops.gap.copy()
    after, lag = ops.after.copy(), ops.lag.copy()
    at, head = mine[op_last], mine[op_first]
    duration[at], latency[at], gaps[at] = length, latest - length - total, ops.gap[head]
    after[at], lag[at] = ops.after[head], ops.lag[head]
    after = np.where(after >= 0, op_of[np.maximum(after, 0)], -1).astype(np.int32)
    arrivals = _arrivals(len(ops), at, (mine, arrival, rest), (op_first, decides, op_last))
    count = np.bincount(row_of[launcher][kept], minlength=len(rows)) if len(kept) else np.zeros(len(rows), np.int64)
    used = is_one_of(do.code, _OF_TARGET) & (do.target >= 0)
    target = np.where(used, row_of[np.maximum(do.target, 0)], -1).astype(np.int32)
    instructions = replace(do, work=work, call=call, target=target)
    instructions = _rows(instructions, rows)
    instructions = replace(instructions, ops=np.cumsum(count).astype(np.int64))
    reduced_ops = _rows(replace(ops, duration=duration, latency=latency, gap=gaps, after=after, lag=lag), kept)
    return Reduced(
        replace(
            program,
            instructions=instructions,
            ops=reduced_ops,
            step_starts=row_of[program.step_starts],
            step_ends=row_of[program.step_ends],
        ),
        Arrivals(arrivals.host[kept], arrivals.device[kept]),
        row_of,
        op_of,
    )


def _arrivals(count: int, at: I64, pairs: tuple[I64, I64, I64], chosen: tuple[I64, I64, I64]) -> Arrivals:
    """Returns the lower bounds of the time at which each op ends. They are 0 for ops that were not merged.

    Args:
        count: The number of ops.
        at: For each run, the op that stands for the run.
        pairs: Three arrays with one value for each op that is in a run: the op, the host's part of its bound, and the
            device's part.
        chosen: Three arrays with one value for each run: the positions in `pairs` of the first op, of the op that
            decides, and of the last op.
    """
    _, arrival, rest = pairs
    host, device = np.zeros((count, 3), dtype=np.int64), np.zeros((count, 3), dtype=np.int64)
    for column, which in enumerate(chosen):
        host[at, column], device[at, column] = arrival[which], rest[which]
    return Arrivals(host, device)
