"""Works out a program's step time after warm-up. For this, the steps of the program are replayed
many times, in rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from unstall.replay.engine import begin
from unstall.replay.program import Code, Instructions, Ops, Program, Replayed
from unstall.timeline.columns import I32, I64
from unstall.timeline.grouping import groups

_SETTLING, _LOOKED_AT = 8, 4  # minimum number of warm-up steps, and of measured steps


@dataclass(frozen=True, slots=True)
class Settled:
    """What a program's step takes after warm-up: means per step, in ns."""

    step_ns: float
    busy_ns: float  # time in which some op runs


@dataclass(frozen=True, eq=False, slots=True)
class _Round:
    """One replay of all steps. It continues after the replay of the previous round. Times are in ns."""

    times: Replayed  # the first round also has what comes before the steps
    steps: int
    streams_wait: bool  # for events: until when is not in the times
    host: int  # when the host is done with the last step
    device: int  # when all work launched so far is done
    done: int  # when that and all steps so far are done

    def moved(self, by: int) -> _Round:
        times = Replayed(*(getattr(self.times, name) + by for name in Replayed.__struct_fields__))
        ends = (self.host + by, self.device + by, self.done + by)
        return _Round(times, self.steps, self.streams_wait, *ends)

    def is_like(self, other: _Round) -> bool:
        return all(
            np.array_equal(getattr(self.times, name), getattr(other.times, name)) for name in Replayed.__struct_fields__
        )


def steady_step_ns(program: Program) -> float:
    """Returns the mean step time of a program after warm-up, in ns.

    A recording has few steps. Its duration includes a phase in which the host gets ahead of the
    device, and a phase in which the device catches up. A user sees the mean over many steps, in
    which these phases hardly count. A whole run happens once: it takes until the device is done, too.
    """
    return _step_ns(*_replayed(program))


def settle(program: Program) -> Settled:
    """Replays the steps of a program many times, and returns the means per step of the last rounds.
    A round is one replay of all steps.
    """
    rounds, measured = _replayed(program)
    low, high = rounds[-1 - measured].done, rounds[-1].done
    starts = np.concatenate([each.times.op_start for each in rounds])
    ends = np.concatenate([each.times.op_end for each in rounds])
    order = np.argsort(starts, kind="stable")
    start, end = (np.clip(times[order], low, high) for times in (starts, ends))
    reached = np.maximum.accumulate(np.append(low, end))[:-1]
    busy = int(np.maximum(end - np.maximum(start, reached), 0).sum())
    return Settled(_step_ns(rounds, measured), busy / (measured * rounds[-1].steps))


def _step_ns(rounds: list[_Round], measured: int) -> float:
    before, last = rounds[-1 - measured], rounds[-1]
    # While the device still catches up with queued work, the host determines the step time.
    return max(last.done - before.done, last.host - before.host) / (measured * last.steps)


def _replayed(program: Program) -> tuple[list[_Round], int]:
    """Replays the steps in rounds.

    Returns:
        `(rounds, count)`: the rounds, and how many of them, at the end, are measured. If the steps do not repeat, one
            round is measured, after an empty one that ends where the first step begins.
    """
    if not program.repeats:
        (only,) = _rounds(program, 1)
        nothing = Replayed(*(getattr(only.times, name)[:0] for name in Replayed.__struct_fields__))
        start = int(only.times.end[program.step_starts[0]])
        return [_Round(nothing, 0, False, start, start, start), only], 1
    steps = len(program.step_starts)
    settling, measured = (-(-least // steps) for least in (_SETTLING, _LOOKED_AT))
    rounds: list[_Round] = []
    for each in _rounds(program, settling + measured):
        rounds.append(each)
        by = _goes_on_by(rounds)
        if by is not None:
            return [*rounds, *(each.moved(by * number) for number in range(1, measured + 1))], measured
    return rounds, measured


def _goes_on_by(rounds: list[_Round]) -> int | None:
    """Returns the time in ns from one round to the next, if this time is the same for all later
    rounds, and None if not.

    The time is the same if three conditions hold. The last two rounds are equal apart from a shift
    in time. No stream waits for an event. The device is at most one round behind the host. Under
    these conditions, no launch is held up because work of earlier rounds fills its launch queue.
    """
    if len(rounds) < 4 or rounds[-1].streams_wait:
        return None
    earlier, before, last = rounds[-3:]
    begin, by = int(last.times.start.min()), last.host - before.host
    behind = earlier.device > begin or before.device > begin + by
    return by if not behind and last.is_like(before.moved(by)) else None


def _rounds(program: Program, most: int) -> Iterator[_Round]:
    """Replays a program to the end of its last step, then replays the steps again and again. Yields
    at most `most` rounds: a round is one replay of all steps.
    """
    do, ops = program.instructions, program.ops
    first, last = int(program.step_starts[0]), int(program.step_ends[-1]) + 1
    first_op = int(do.ops[first - 1]) if first else 0
    last_op = int(do.ops[last - 1])
    # What was recorded of the host is a third of the columns, and takes no part in a replay.
    do = replace(do, recorded=do.recorded[:0])
    part = replace(program, instructions=_rows(do, 0, last), ops=_rows(ops, 0, last_op))
    target = _Carried.of(do.target, first, last, likes_of_targets(do, first, last))
    after = _Carried.of(ops.after, first_op, last_op, likes(ops.stream, ops.after, first_op, last_op))
    steps, steps_ops = _rows(do, first, last), _rows(ops, first_op, last_op)
    # Between the last step and the repeated first one, the thread works as long as it usually does between steps.
    between = do.work[program.step_starts[1:]]
    work = steps.work.copy()
    work[0] = round(float(between.mean())) if len(between) else 0
    steps = replace(steps, work=work, ops=steps.ops - first_op)
    streams_wait = bool((steps.code == Code.STREAM_WAIT).any())
    engine, ends, device, done = begin(program.capacity), program.step_ends, 0, 0
    for number in range(most):
        times = engine.feed(part)
        host = times.end[ends]
        device = max(device, int(times.op_end.max(initial=0)))
        done = max(done, device, int(host.max()))
        yield _Round(times, len(ends), streams_wait, int(host[-1]), device, done)
        ends = program.step_ends - first
        part = replace(
            program,
            instructions=replace(steps, target=target.in_round(number + 1)),
            ops=replace(steps_ops, after=after.in_round(number + 1)),
        )


_Table = TypeVar("_Table", Instructions, Ops)


def _rows(table: _Table, first: int, last: int) -> _Table:
    return replace(table, **{name: getattr(table, name)[first:last] for name in table.__struct_fields__})


@dataclass(frozen=True, eq=False, slots=True)
class _Carried:
    """The indices that the steps have in a column such as `target`, and how much each index grows
    from round to round.
    """

    index: I64  # in the round after the first
    moves: I64

    @classmethod
    def of(cls, column: I32, first: int, last: int, likes: I64) -> _Carried:
        """Returns the indices in column[first:last], and how they change in the rounds after the
        first. A round is one replay of the steps, which are the rows from `first` to `last`.

        The index of a row within the steps grows in each round, by the number of rows in the steps.
        The index of a row before the steps is replaced by the index of its counterpart in the round
        before. If the row has no counterpart, its index stays unchanged.

        Args:
            column: Indices of rows.
            first: The first row of the steps.
            last: The row after the steps.
            likes: The counterparts that the function `likes` returns.
        """
        values, period = column[first:last], last - first
        inside = values >= first
        like = np.where(inside, -1, likes)
        index = np.where(inside, values + period, np.where(like >= 0, like, values))
        return cls(index, np.where(inside | (like >= 0), period, 0))

    def in_round(self, number: int) -> I32:
        return (self.index + self.moves * (number - 1)).astype(np.int32)


def likes_of_targets(do: Instructions, first: int, last: int) -> I64:
    """Returns, for each instruction of the steps, the counterpart of its target, or -1. The target
    of an instruction is the instruction for which it waits (`Instructions.target`). The function
    `likes` says what a counterpart is.

    The target of a `Code.JOIN` has a counterpart on the same thread. The target of any other
    instruction is a `Code.RECORD`, and its counterpart is a `Code.RECORD` of the same stream.

    Args:
        do: The instructions of a program.
        first: The first instruction of the steps.
        last: The instruction after the steps.
    """
    by_thread = likes(do.thread, do.target, first, last)
    records = np.where(do.code == Code.RECORD, do.stream, -1)
    return np.where(do.code[first:last] == Code.JOIN, by_thread, likes(records, do.target, first, last))


def likes(kinds: I32, column: I32, first: int, last: int) -> I64:
    """Finds counterparts within the steps for rows before the steps. The rows [first, last) of a
    table are the steps.

    A step may refer to a row before the steps. When the steps are replayed once more, it must refer
    to a row of the round before instead: to the counterpart. A row and its counterpart have the
    same kind, and the same position among the rows of this kind, counted from the end. For example,
    the last row of a kind before the steps has the last row of this kind within the steps as its
    counterpart. Only rows before the steps have counterparts.

    Args:
        kinds: The kind of each row.
        column: Indices of rows, to which the rows refer.
        first: The first row of the steps.
        last: The row after the steps.

    Returns:
        For each index in column[first:last], the counterpart of the row with this index, or -1.
    """
    counterparts = np.full(first + 1, -1, dtype=np.int64)
    inside = dict(groups(kinds[first:last]))
    for kind, mine in groups(kinds[:first]):
        theirs = inside.get(kind, mine[:0])
        count = min(len(mine), len(theirs))
        counterparts[mine[len(mine) - count :]] = first + theirs[len(theirs) - count :]
    # Neither -1, no index, nor an index in first … last has one.
    return counterparts[np.minimum(column[first:last], first)]
