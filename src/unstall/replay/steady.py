"""The step time that a program settles to: the same steps again and again, with what was still queued carried on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unstall.replay.engine import replay
from unstall.replay.program import Code, Instructions, Ops, Program
from unstall.timeline.columns import I32, I64
from unstall.timeline.grouping import groups

_SETTLING, _LOOKED_AT = 8, 4  # steps, at the least


@dataclass(frozen=True, slots=True)
class Settled:
    """A run long enough that its beginning and its end do not count. ns a step."""

    step_ns: float
    busy_ns: float  # in which some op runs


def steady_step_ns(program: Program) -> float:
    """Mean ns a step of the settled program.

    A recording is of few steps, and spans the time in which the host gets ahead and that in which the device catches
    up; the step time that a user sees is of many.
    """
    return settle(program).step_ns


def settle(program: Program) -> Settled:
    """Replay the steps again and again, and look at the later ones."""
    steps = len(program.step_starts)
    settling, looked_at = (-(-least // steps) for least in (_SETTLING, _LOOKED_AT))
    long = repeat(program, settling + looked_at)
    replayed = replay(long)
    launcher, ends = long.launcher, long.step_ends
    done = np.zeros(len(ends), dtype=np.int64)
    np.maximum.at(done, np.minimum(np.searchsorted(ends, launcher), len(ends) - 1), replayed.op_end)
    done = np.maximum(np.maximum.accumulate(done), replayed.end[ends])
    settled = settling * steps - 1
    low, high, count = int(done[settled]), int(done[-1]), len(ends) - 1 - settled
    order = np.argsort(replayed.op_start, kind="stable")
    start, end = (np.clip(times[order], low, high) for times in (replayed.op_start, replayed.op_end))
    reached = np.maximum.accumulate(np.append(low, end))[:-1]
    busy = int(np.maximum(end - np.maximum(start, reached), 0).sum())
    # While the device catches up with what it had queued before, the host is the one that says how long a step takes.
    host = int(replayed.end[ends[-1]] - replayed.end[ends[settled]])
    return Settled(max(high - low, host) / count, busy / count)


def repeat(program: Program, times: int) -> Program:
    """The program whose steps come so many times; what came after them is left out."""
    do, ops = program.instructions, program.ops
    first, last = int(program.step_starts[0]), int(program.step_ends[-1]) + 1
    first_op = int(do.ops[first - 1]) if first else 0
    last_op = int(do.ops[last - 1])

    def each(column: np.ndarray) -> np.ndarray:
        return np.concatenate((column[:last], *[column[first:last]] * (times - 1)))

    def each_op(column: np.ndarray) -> np.ndarray:
        return np.concatenate((column[:last_op], *[column[first_op:last_op]] * (times - 1)))

    # A record is like another of its stream, anything else like another of its thread.
    kinds = np.where(do.code == Code.RECORD, do.stream.astype(np.int64), -1 - do.thread.astype(np.int64))
    work = each(do.work)
    # From the end of the last step to the first one's start it takes what it usually takes between two.
    between = do.work[program.step_starts[1:]]
    work[last :: last - first] = round(float(between.mean())) if len(between) else 0
    repetition = np.arange(times)
    ends = do.ops[first:last] + (last_op - first_op) * repetition[:, None]
    marks = (last - first) * repetition[:, None]
    return replace(
        program,
        instructions=Instructions(
            code=each(do.code),
            thread=each(do.thread),
            stream=each(do.stream),
            target=_carried(do.target, first, last, times, _likes(kinds, first, last)),
            work=work,
            call=each(do.call),
            latency=each(do.latency),
            ops=np.append(do.ops[:first], ends),
            host=each(do.host),
            recorded=each(do.recorded),
        ),
        ops=Ops(
            stream=each_op(ops.stream),
            engine=each_op(ops.engine),
            after=_carried(ops.after, first_op, last_op, times, _likes(ops.stream, first_op, last_op)),
            duration=each_op(ops.duration),
            latency=each_op(ops.latency),
            gap=each_op(ops.gap),
            lag=each_op(ops.lag),
            device=each_op(ops.device),
        ),
        step_starts=(program.step_starts + marks).ravel(),
        step_ends=(program.step_ends + marks).ravel(),
    )


def _carried(column: I32, first: int, last: int, times: int, likes: I64) -> I32:
    """Indices into what is repeated move with it; those before it become their like in the repetition before."""
    values, period = column[first:last], last - first
    inside = values >= first
    like = np.where(inside | (values < 0), -1, likes[np.clip(values, 0, first)])
    moved = np.where(inside, values + period, np.where(like >= 0, like, values))
    moves = np.where(inside | (like >= 0), period, 0)
    after = (moved + moves * np.arange(times - 1)[:, None]).astype(np.int32)
    return np.append(column[:last], after)


def _likes(kinds: I64 | I32, first: int, last: int) -> I64:
    """For each row before `first` the one of its kind in first … last that is as far from the end; -1 for none."""
    likes = np.full(first + 1, -1, dtype=np.int64)
    inside = dict(groups(kinds[first:last]))
    for kind, mine in groups(kinds[:first]):
        theirs = inside.get(kind, mine[:0])
        count = min(len(mine), len(theirs))
        likes[mine[len(mine) - count :]] = first + theirs[len(theirs) - count :]
    return likes
