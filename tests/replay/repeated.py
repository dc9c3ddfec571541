"""A slow twin of `replay/steady.py`: the steps are copied into one long program, all of which is replayed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from unstall.replay.engine import replay
from unstall.replay.program import Instructions, Ops, Program, Replayed
from unstall.replay.steady import likes, likes_of_targets
from unstall.timeline.columns import I32, I64

_SETTLING, _LOOKED_AT = 8, 4  # minimum number of warm-up steps, and of measured steps


@dataclass(frozen=True, slots=True)
class Settled:
    """Means over the measured steps, after warm-up, in ns per step."""

    step_ns: float
    busy_ns: float  # time in which some op runs


def settle(program: Program) -> Settled:
    """Replay the steps repeatedly, and measure the later ones."""
    replayed, low, high, count, host = _replayed(program)
    order = np.argsort(replayed.op_start, kind="stable")
    start, end = (np.clip(times[order], low, high) for times in (replayed.op_start, replayed.op_end))
    reached = np.maximum.accumulate(np.append(low, end))[:-1]
    busy = int(np.maximum(end - np.maximum(start, reached), 0).sum())
    return Settled(_step_ns(replayed, low, high, count, host), busy / count)


def _replayed(program: Program) -> tuple[Replayed, int, int, int, int]:
    """Returns (the repeated program's times, start and end of the measured steps, their number, ns that they take the
    host)."""
    steps = len(program.step_starts)
    settling, looked_at = (-(-least // steps) for least in (_SETTLING, _LOOKED_AT))
    # What was recorded of the host is a third of the columns, and takes no part in a replay.
    do = program.instructions
    bare = replace(program, instructions=replace(do, recorded=do.recorded[:0]))
    long = repeat(bare, settling + looked_at)
    replayed, ends = replay(long), long.step_ends
    # The last op that each step launched; ops are in the order of their launches.
    upto = long.instructions.ops[ends]
    upto[-1] = len(long.ops)
    reached = np.maximum.accumulate(replayed.op_end)
    done = np.where(upto > 0, np.append(reached, 0)[upto - 1], 0)
    done = np.maximum(np.maximum.accumulate(done), replayed.end[ends])
    settled = settling * steps - 1
    host = int(replayed.end[ends[-1]] - replayed.end[ends[settled]])
    return replayed, int(done[settled]), int(done[-1]), len(ends) - 1 - settled, host


def _step_ns(replayed: Replayed, low: int, high: int, count: int, host: int) -> float:
    # While the device still catches up with queued work, the host determines the step time.
    return max(high - low, host) / count


def repeat(program: Program, times: int) -> Program:
    """Returns the program with its steps repeated `times` times, and without what came after them."""
    do, ops = program.instructions, program.ops
    first, last = int(program.step_starts[0]), int(program.step_ends[-1]) + 1
    first_op = int(do.ops[first - 1]) if first else 0
    last_op = int(do.ops[last - 1])

    def each(column: np.ndarray) -> np.ndarray:
        return np.concatenate((column[:last], *[column[first:last]] * (times - 1)))

    def each_op(column: np.ndarray) -> np.ndarray:
        return np.concatenate((column[:last_op], *[column[first_op:last_op]] * (times - 1)))

    work = each(do.work)
    # Between the last step and the repeated first one, the thread works as long as it usually does between steps.
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
            target=_carried(do.target, first, last, times, likes_of_targets(do, first, last)),
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
            share=each_op(ops.share),
            blocks=each_op(ops.blocks),
            size=each_op(ops.size),
            cached=each_op(ops.cached),
            data=each_op(ops.data),
            uncached=each_op(ops.uncached),
            again=each_op(ops.again),
            after=_carried(ops.after, first_op, last_op, times, likes(ops.stream, ops.after, first_op, last_op)),
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
    """Shifts indices for each repetition. An index before `first` becomes its counterpart in the repetition before."""
    values, period = column[first:last], last - first
    inside = values >= first
    like = np.where(inside, -1, likes)
    moved = np.where(inside, values + period, np.where(like >= 0, like, values))
    moves = np.where(inside | (like >= 0), period, 0)
    after = (moved + moves * np.arange(times - 1)[:, None]).astype(np.int32)
    return np.append(column[:last], after)
