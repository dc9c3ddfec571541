"""The step time that a program settles to: the same steps again and again, with what was still queued carried on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unstall.grouping import groups
from unstall.replay.engine import replay
from unstall.replay.program import Code, Instructions, Ops, Program
from unstall.timeline import I32, I64

_FEWEST_STEPS = 4  # that are looked at, after as many to settle


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
    again = -(-_FEWEST_STEPS // steps)
    long = repeat(program, 1 + 2 * again)
    replayed = replay(long)
    launcher, ends = long.launcher, long.step_ends
    done = np.zeros(len(ends), dtype=np.int64)
    np.maximum.at(done, np.minimum(np.searchsorted(ends, launcher), len(ends) - 1), replayed.op_end)
    done = np.maximum(np.maximum.accumulate(done), replayed.end[ends])
    settled = (1 + again) * steps - 1
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
    rows = np.concatenate((np.arange(first), *[np.arange(first, last)] * times))
    op_rows = np.concatenate((np.arange(first_op), *[np.arange(first_op, last_op)] * times))
    shift = np.repeat((last - first) * np.arange(times), last - first)
    shift = np.concatenate((np.zeros(first, dtype=np.int64), shift))
    op_shift = np.repeat((last_op - first_op) * np.arange(times), last_op - first_op)
    op_shift = np.concatenate((np.zeros(first_op, dtype=np.int64), op_shift))

    # A record is like another of its stream, anything else like another of its thread.
    kinds = np.where(do.code == Code.RECORD, do.stream.astype(np.int64), -1 - do.thread.astype(np.int64))

    likes = _likes(kinds, first, last)
    op_likes = _likes(ops.stream, first_op, last_op)

    def carried(column: np.ndarray, chosen: I64, by: I64, border: int, period: int, earlier: I64) -> np.ndarray:
        """Indices into what is repeated move with it; those before it become its like in the repetition before."""
        values = column[chosen].astype(np.int64)
        like = np.where((values >= 0) & (values < border), earlier[np.clip(values, 0, border)], -1)
        before = like + by - period
        again = (by > 0) & (like >= 0)
        return np.where(values >= border, values + by, np.where(again, before, values)).astype(column.dtype)

    work = do.work[rows]
    # From the end of the last step to the first one's start it takes what it usually takes between two.
    between = do.work[program.step_starts[1:]]
    work[first + (last - first) * np.arange(1, times)] = round(float(between.mean())) if len(between) else 0
    marks = (last - first) * np.repeat(np.arange(times), len(program.step_starts))
    return replace(
        program,
        instructions=Instructions(
            code=do.code[rows],
            thread=do.thread[rows],
            stream=do.stream[rows],
            target=carried(do.target, rows, shift, first, last - first, likes),
            work=work,
            call=do.call[rows],
            latency=do.latency[rows],
            ops=do.ops[rows] + shift // (last - first) * (last_op - first_op),
            host=do.host[rows],
            recorded=do.recorded[rows],
        ),
        ops=Ops(
            stream=ops.stream[op_rows],
            engine=ops.engine[op_rows],
            after=carried(ops.after, op_rows, op_shift, first_op, last_op - first_op, op_likes),
            duration=ops.duration[op_rows],
            latency=ops.latency[op_rows],
            gap=ops.gap[op_rows],
            lag=ops.lag[op_rows],
            device=ops.device[op_rows],
        ),
        step_starts=np.tile(program.step_starts, times) + marks,
        step_ends=np.tile(program.step_ends, times) + marks,
    )


def _likes(kinds: I64 | I32, first: int, last: int) -> I64:
    """For each row before `first` the one of its kind in first … last that is as far from the end; -1 for none."""
    likes = np.full(first + 1, -1, dtype=np.int64)
    inside = dict(groups(kinds[first:last]))
    for kind, mine in groups(kinds[:first]):
        theirs = inside.get(kind, mine[:0])
        count = min(len(mine), len(theirs))
        likes[mine[len(mine) - count :]] = first + theirs[len(theirs) - count :]
    return likes
