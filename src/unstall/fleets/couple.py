"""Couples the programs of all ranks into one `Program`, so that a single replay runs all ranks. Ranks wait for each
other at their joint operations: collectives in which several ranks take part.

In the coupled program, each rank's part of a collective becomes four instructions. ARRIVE launches an op of length 0,
which starts when the rank's part of the collective would start. RECORD records an event after this op. WAIT lets the
stream wait for the events of all ranks that take part. TRANSFER launches a second op, which lasts as long as the
transfer.

One of the ranks, the leader, waits for the events of all others and then records one event for which the others wait.
So a collective of N ranks needs about 2 N instructions for its waits, not N squared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.replay.program import Code, Instructions, Ops, Program, Recorded, Replayed
from unstall.timeline.columns import I64, Bool

_PIECES = 4
_ARRIVE, _RECORD, _WAIT, _TRANSFER = range(_PIECES)


class Meeting(msgspec.Struct, frozen=True, eq=False):
    """The joint operations of a job: collectives in which several ranks take part. A member is one rank's part of a
    joint operation.

    Attributes:
        first: Joint operation i has the members first[i] to first[i + 1] - 1. The array has one value more than there
            are joint operations.
        rank: For each member, the index of its rank's program in the list of programs.
        op: For each member, the index of its op in this program.
        transfer: For each member, the time from the arrival of the last member to the end of this member, in ns.
    """

    first: I64
    rank: I64
    op: I64
    transfer: I64

    def __len__(self) -> int:
        return len(self.first) - 1


class Coupled(msgspec.Struct, frozen=True, eq=False):
    """The programs of all ranks, coupled into one program. The tuples `row_of`, `arrives`, `ends`, `step_rows` and
    `op_step` have one element for each rank.

    Attributes:
        program: The coupled program.
        row_of: For each instruction of the rank's own program, the index of the instruction in the coupled program that
            ends as it does.
        arrives: For each op of the rank's own program, the index of the op in the coupled program that starts as it
            does.
        ends: For each op of the rank's own program, the index of the op in the coupled program that ends as it does.
        step_rows: A pair of arrays: the first and the last instruction of each step, as indices into the rank's own
            program.
        op_step: For each op of the rank's own program, the index of the step that launched it. -1 if no step did.
        uncoupled: The number of joint operations that were left out because the ranks call them in different orders.
    """

    program: Program
    row_of: tuple[I64, ...]
    arrives: tuple[I64, ...]
    ends: tuple[I64, ...]
    step_rows: tuple[tuple[I64, I64], ...]
    op_step: tuple[I64, ...]
    uncoupled: int

    def host_ends(self, times: Replayed) -> I64:
        """Returns an array of shape (ranks, steps): when each rank's host has finished each step, in ns. `times` is a
        replay of `program`."""
        steps = min(len(each) for _, each in self.step_rows)
        return np.stack([times.end[self.row_of[rank][last]][:steps] for rank, (_, last) in enumerate(self.step_rows)])

    def step_ends(self, times: Replayed) -> I64:
        """Returns an array of shape (ranks, steps): when both the host and the device of each rank have finished each
        step, in ns. `times` is a replay of `program`."""
        rows = []
        steps = min(len(each) for _, each in self.step_rows)
        for rank, (_, last) in enumerate(self.step_rows):
            ends = times.end[self.row_of[rank][last]]
            rows.append(ends_of_steps(ends, self.op_step[rank], times.op_end[self.ends[rank]])[:steps])
        return np.stack(rows)

    def step_starts(self, times: Replayed) -> I64:
        """Returns an array of shape (ranks, steps): when each rank's host began each step, in ns. `times` is a replay
        of `program`."""
        steps = min(len(each) for each, _ in self.step_rows)
        return np.stack([times.end[self.row_of[rank][first]][:steps] for rank, (first, _) in enumerate(self.step_rows)])


def ends_of_steps(host: I64, op_step: I64, op_end: I64) -> I64:
    """Returns when each step of a rank ended, in ns. A step has ended when the host has finished it and all ops of this
    step and of earlier steps have ended.

    Args:
        host: When the host finished each step, in ns.
        op_step: For each op, the index of the step that launched it. -1 if no step did.
        op_end: When each op ended, in ns.
    """
    ends = host.copy()
    inside = op_step >= 0
    np.maximum.at(ends, op_step[inside], op_end[inside])
    latest: I64 = np.maximum.accumulate(ends)
    return latest


def couple(programs: Sequence[Program], meeting: Meeting, offsets: Sequence[int] | None = None) -> Coupled:
    """Couples the programs of all ranks into one program, in which the ranks wait for each other at their joint
    operations.

    If ranks call joint operations in different orders, these operations are left out: each rank's part then keeps its
    recorded length, and waits for no other rank.

    Args:
        programs: The program of each rank.
        meeting: The joint operations of the programs.
        offsets: For each rank, how much later its program begins than that of the first rank to begin, in ns. None: all
            programs begin at the same time.
    """
    every = _Every.of(programs)
    pieces = _Pieces.of(every, meeting)
    order, uncoupled = _order(pieces, every, meeting)
    if len(uncoupled):
        # Their members keep the length that they had, and wait for nobody.
        kept = np.ones(len(meeting), dtype=np.bool_)
        kept[uncoupled] = False
        coupled = couple(programs, without(meeting, kept), offsets)
        return replace(coupled, uncoupled=coupled.uncoupled + len(uncoupled))
    return _assembled(every, pieces, order, meeting, [0] * len(programs) if offsets is None else offsets)


def without(meeting: Meeting, kept: Bool) -> Meeting:
    """Returns a `Meeting` with only some of the joint operations of `meeting`. `kept` is a mask with one value for each
    joint operation: True if the operation is kept."""
    sizes = np.diff(meeting.first)
    of_member = np.repeat(kept, sizes)
    first = np.append(0, np.cumsum(sizes[kept]))
    return Meeting(first, meeting.rank[of_member], meeting.op[of_member], meeting.transfer[of_member])


class _Every(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The programs of all ranks one after the other, as one table: numpy takes as long for one small rank as for many.

    The numbers in a column count within each rank's own program. Attributes named `first_…` have, for each rank, what
    is to be added to such numbers, and the number of all at the end.

    Attributes:
        programs: The program of each rank.
        rank: For each instruction, the index of its rank.
        rank_of_op: For each op, the index of its rank.
        launcher: For each op, the instruction of this table that launched it.
        first_row: The first instruction of each rank.
        first_op: The first op of each rank.
        first_thread: The first thread of each rank.
        first_stream: The first stream of each rank.
        first_engine: The first engine of each rank.
    """

    programs: Sequence[Program]
    rank: I64
    rank_of_op: I64
    launcher: I64
    first_row: I64
    first_op: I64
    first_thread: I64
    first_stream: I64
    first_engine: I64

    @classmethod
    def of(cls, programs: Sequence[Program]) -> _Every:
        def bases(counts: Sequence[int]) -> I64:
            return np.cumsum([0, *counts])

        rows = bases([len(program.instructions) for program in programs])
        ops = bases([len(program.ops) for program in programs])
        ranks = np.arange(len(programs))
        rank = np.repeat(ranks, np.diff(rows))
        ends = np.concatenate([program.instructions.ops for program in programs]) + ops[rank]
        return cls(
            programs=programs,
            rank=rank,
            rank_of_op=np.repeat(ranks, np.diff(ops)),
            launcher=np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)),
            first_row=rows,
            first_op=ops,
            first_thread=bases([program.threads for program in programs]),
            first_stream=bases([len(program.device_of_stream) for program in programs]),
            first_engine=bases([program.engines for program in programs]),
        )

    def column(self, name: str) -> np.ndarray:
        """Returns a column of the instructions."""
        return np.concatenate([getattr(program.instructions, name) for program in self.programs])

    def op_column(self, name: str) -> np.ndarray:
        """Returns a column of the ops."""
        return np.concatenate([getattr(program.ops, name) for program in self.programs])

    @cached_property
    def as_one(self) -> Bool:
        """For each rank, whether all its devices count as one: its program waits for all of them at once (device -1),
        and that wait must not wait for other ranks.
        """
        waits = (self.column("code") == Code.SYNC_DEVICE) & (self.column("stream") < 0)
        rank_waits: Bool = np.bincount(self.rank[waits], minlength=len(self.programs)) > 0
        return rank_waits

    def by_rank(self, rows: I64) -> tuple[I64, ...]:
        """Splits a column of instructions."""
        return tuple(np.split(rows, self.first_row[1:-1]))

    def ops_by_rank(self, ops: I64) -> tuple[I64, ...]:
        """Splits a column of ops."""
        return tuple(np.split(ops, self.first_op[1:-1]))

    def step_of_ops(self) -> I64:
        """By op: the step of the rank's program that launched it, or -1."""
        counts = [len(program.step_starts) for program in self.programs]
        of_step = np.repeat(self.first_row[:-1], counts)
        starts = np.concatenate([program.step_starts for program in self.programs]) + of_step
        ends = np.concatenate([program.step_ends for program in self.programs]) + of_step
        step = np.searchsorted(starts, self.launcher, side="right") - 1
        own = step - (np.cumsum([0, *counts]))[self.rank_of_op]  # negative if the step is one of the rank before
        return np.where((own >= 0) & (self.launcher <= ends[np.maximum(step, 0)]), own, -1)


class _Pieces(msgspec.Struct, frozen=True, eq=False):
    """The rows (instructions) of all ranks in the coupled program. They are those of the ranks' own programs, but each
    launch of a joint operation is split into pieces: ARRIVE, RECORD, WAIT, TRANSFER.

    Attributes:
        row: For each row, its instruction in `_Every`.
        piece: For each row, the number of the piece. -1 if the instruction is not split.
        member: For each row, the member of the joint operation whose piece it is, or -1.
        op_first: For each row, the index of its first op in `op`.
        op_count: For each row, the number of its ops.
        op: For each op in the coupled program, its op in `_Every`.
        chunk: For each row, the number of joint operations of its rank that begin before it.
        meets: For each rank, for each chunk but the last, the joint operation that ends the chunk.
    """

    row: I64
    piece: I64
    member: I64
    op_first: I64
    op_count: I64
    op: I64
    chunk: I64
    meets: tuple[I64, ...]

    @property
    def is_last(self) -> Bool:
        """A mask with one value for each row: True if the row is the last piece of its instruction."""
        return np.append(self.row[1:] != self.row[:-1], True)[: len(self.row)]

    @classmethod
    def of(cls, every: _Every, meeting: Meeting) -> _Pieces:
        launcher, rows_count = every.launcher, len(every.rank)
        joint = np.full(len(launcher), -1, dtype=np.int64)
        joint[every.first_op[meeting.rank] + meeting.op] = np.arange(len(meeting.rank))
        operation = np.repeat(np.arange(len(meeting)), np.diff(meeting.first))
        is_joint = joint >= 0
        # A launch with several ops is cut before and after each joint one.
        cut = np.diff(launcher, prepend=-1) != 0
        cut |= is_joint | np.append(False, is_joint[:-1])[: len(cut)]
        segments = np.bincount(launcher[cut], minlength=rows_count).astype(np.int64)
        rows = np.repeat(np.arange(rows_count), np.maximum(segments, 1))
        has_ops = np.repeat(segments > 0, np.maximum(segments, 1))
        first_op = np.full(len(rows), -1, dtype=np.int64)
        first_op[has_ops] = np.flatnonzero(cut)
        count = np.zeros(len(rows), dtype=np.int64)
        count[has_ops] = np.diff(np.append(np.flatnonzero(cut), len(launcher)))
        member = np.where(first_op >= 0, joint[np.maximum(first_op, 0)], -1) if len(joint) else first_op

        times = np.where(member >= 0, _PIECES, 1)
        at = np.repeat(np.arange(len(rows)), times)
        start = np.cumsum(times) - times
        row, member = rows[at], member[at]
        piece = np.where(member >= 0, np.arange(len(at)) - start[at], -1)
        records = piece == _RECORD
        op_count = np.where(records | (piece == _WAIT), 0, count[at])
        source = np.repeat(first_op[at], op_count)
        within = np.arange(int(op_count.sum())) - np.repeat(np.cumsum(op_count) - op_count, op_count)
        rank = every.rank[row]
        met = np.bincount(rank[records], minlength=len(every.programs))
        before = np.cumsum(met) - met
        return cls(
            row=row,
            piece=piece,
            member=member,
            op_first=np.cumsum(op_count) - op_count,
            op_count=op_count,
            op=source + within,
            chunk=np.cumsum(records) - records - before[rank],
            meets=tuple(np.split(operation[member[records]], before[1:])),
        )


def _order(pieces: _Pieces, every: _Every, meeting: Meeting) -> tuple[_Turns, I64]:
    """Finds an order of the ranks' chunks in which each comes after what it depends on.

    A chunk is what a rank does between two joint operations. Returns (turns, stuck). `stuck` has the operations at
    which ranks wait for each other in a circle.
    """
    sizes = np.diff(meeting.first).tolist()
    first, member_ranks = meeting.first.tolist(), meeting.rank.tolist()
    arrived = [0] * len(meeting)
    meets = [each.tolist() for each in pieces.meets]
    turns: list[list[int]] = [[] for _ in meets]
    when_met = [-1] * len(meeting)
    turn = 0
    ready = deque(range(len(meets)))
    while ready:
        rank = ready.popleft()
        mine, its = turns[rank], meets[rank]
        mine.append(turn)
        turn += 1
        if len(mine) > len(its):
            continue
        operation = its[len(mine) - 1]
        arrived[operation] += 1
        if arrived[operation] == sizes[operation]:
            when_met[operation] = turn
            turn += 1
            ready.extend(member_ranks[first[operation] : first[operation + 1]])
    stuck = [operation for operation, size in enumerate(sizes) if 0 < arrived[operation] < size]
    found = np.array(stuck, dtype=np.int64)
    flat = [each for mine in turns for each in mine]
    begins = np.cumsum([0, *map(len, turns)])[:-1]
    return _Turns(np.array(flat, np.int64), begins, np.array(when_met, np.int64), turn), found


class _Turns(msgspec.Struct, frozen=True, eq=False):
    """The order of chunks and joint operations. Each of them has a number, its turn.

    Attributes:
        of_chunk: The turns of each rank's chunks, one rank after the other.
        first: For each rank, the index of its first chunk in `of_chunk`.
        of_operation: For each joint operation, the turn at which all members have arrived.
        count: The number of turns.
    """

    of_chunk: I64
    first: I64
    of_operation: I64
    count: int


def _assembled(every: _Every, pieces: _Pieces, turns: _Turns, meeting: Meeting, offsets: Sequence[int]) -> Coupled:
    # The leader's rows of each operation: it waits for each other member, and passes on a mark.
    sizes = np.diff(meeting.first)
    leader = meeting.first[:-1]
    gathers = np.repeat(np.arange(len(meeting)), sizes)  # one row a member: waits, and the mark in the leader's place
    rank = every.rank[pieces.row]
    is_mark = np.zeros(len(gathers), dtype=np.bool_)
    is_mark[leader] = True
    within = np.arange(len(gathers)) - np.repeat(leader, sizes)
    turn = turns.of_chunk[turns.first[rank] + pieces.chunk]
    of_operation = turns.of_operation[gathers]
    # The rows of a chunk follow each other, and so do those of a leader, with the mark at their end.
    begins_chunk = np.flatnonzero(np.diff(turn, prepend=-1))
    lengths = np.bincount(turn, minlength=turns.count) + np.bincount(of_operation, minlength=turns.count)
    starts = np.cumsum(lengths) - lengths
    own, rows = len(turn), len(turn) + len(gathers)
    at = starts[turn] + np.arange(own) - np.repeat(begins_chunk, np.diff(np.append(begins_chunk, own)))
    gathered = starts[of_operation] + np.where(is_mark, sizes[gathers], within) - 1
    counts = np.zeros(rows, dtype=np.int64)
    counts[at] = pieces.op_count
    ends = np.cumsum(counts)

    row_of = np.full(len(every.rank), -1, dtype=np.int64)
    row_of[pieces.row] = at  # the last piece of each row
    op_position = np.repeat(ends[at] - counts[at] - pieces.op_first, pieces.op_count) + np.arange(len(pieces.op))
    begins, finishes = np.full(len(every.launcher), -1, np.int64), np.full(len(every.launcher), -1, np.int64)
    begins[pieces.op[::-1]] = op_position[::-1]
    finishes[pieces.op] = op_position

    # Where each member's mark stands, and each operation's.
    records = pieces.piece == _RECORD
    mark_of = np.full(len(meeting.rank), -1, dtype=np.int64)
    mark_of[pieces.member[records]] = at[records]
    columns = _instructions(every, pieces, meeting, offsets, (gathered[leader], row_of))
    boss = leader[gathers]
    on = every.op_column("stream")[every.first_op[meeting.rank[leader]] + meeting.op[leader]].astype(np.int64)
    on += every.first_stream[meeting.rank[leader]]
    none = np.zeros(len(gathers), np.int64)
    of_leaders = {
        "code": np.where(is_mark, Code.RECORD, Code.STREAM_WAIT),
        "thread": every.first_thread[meeting.rank[boss]],
        "stream": on[gathers],
        "target": np.where(is_mark, -1, mark_of),
        "work": none,
        "call": none,
        "latency": none,
    }
    types = {"code": np.int8, "thread": np.int32, "stream": np.int32, "target": np.int32}
    placed = {}
    for name, column in columns.items():
        placed[name] = np.empty(rows, types.get(name, np.int64))
        placed[name][at], placed[name][gathered] = column, of_leaders[name]
    instructions = Instructions(
        **placed, ops=ends, host=np.full(rows, -1, np.int32), recorded=np.zeros((0, len(Recorded)), dtype=np.int32)
    )
    programs = every.programs
    first = np.array([row_of[programs[0].step_starts[0]]]) if programs else np.zeros(0, np.int64)
    program = Program(
        instructions=instructions,
        ops=_ops(every, pieces, op_position, finishes, meeting),
        threads=int(every.first_thread[-1]),
        device_of_stream=_devices(every),
        engines=int(every.first_engine[-1]),
        capacity=max(program.capacity for program in programs),
        step_starts=first,
        step_ends=np.array([rows - 1]),
        thread_of=np.arange(int(every.first_thread[-1]), dtype=np.int32),
    )
    return Coupled(
        program,
        every.by_rank(row_of),
        every.ops_by_rank(begins),
        every.ops_by_rank(finishes),
        tuple((each.step_starts, each.step_ends) for each in programs),
        every.ops_by_rank(every.step_of_ops()),
        uncoupled=0,
    )


def _instructions(
    every: _Every, pieces: _Pieces, meeting: Meeting, offsets: Sequence[int], new_rows: tuple[I64, I64]
) -> dict[str, I64]:
    """Returns the columns of the ranks' own rows. `new_rows` are those of each operation's mark and of each row."""
    met, row_of = new_rows
    piece, row = pieces.piece, pieces.row
    rank = every.rank[row]
    again = np.append(False, row[1:] == row[:-1])[: len(row)]
    code = every.column("code")[row].astype(np.int64)
    code[piece == _RECORD] = Code.RECORD
    code[piece == _WAIT] = Code.STREAM_WAIT
    own_stream = every.column("stream")[row]
    stream = own_stream.astype(np.int64)
    joint = piece >= 0
    member = pieces.member[joint]
    stream[joint] = every.op_column("stream")[every.first_op[meeting.rank[member]] + meeting.op[member]]
    on_stream = np.isin(code, (Code.LAUNCH, Code.RECORD, Code.STREAM_WAIT, Code.SYNC_STREAM))
    stream += np.where(on_stream & (stream >= 0), every.first_stream[rank], 0)
    device = code == Code.SYNC_DEVICE
    stream[device] = _device(every, rank[device], own_stream[device])
    thread = every.column("thread")[row] + every.first_thread[rank]
    # The call's time belongs to its last piece, since an op may start before its call returns.
    work, call = np.where(again, 0, every.column("work")[row]), np.where(pieces.is_last, every.column("call")[row], 0)
    begins = np.unique(thread, return_index=True)[1]  # where each thread begins
    work[begins] += np.asarray(offsets, np.int64)[rank[begins]]
    target = np.where(np.isin(code, (Code.STREAM_WAIT, Code.SYNC_EVENT, Code.JOIN)), every.column("target")[row], -1)
    target = target.astype(np.int64)
    own = (piece < 0) & (target >= 0)
    target[own] = row_of[every.first_row[rank[own]] + target[own]]
    waits = piece == _WAIT
    operation = np.searchsorted(meeting.first, pieces.member[waits], side="right") - 1
    target[waits] = met[operation]
    # The leader has waited for everybody by itself.
    code[waits] = np.where(meeting.first[operation] == pieces.member[waits], Code.CALL, Code.STREAM_WAIT)
    latency = np.where(joint, 0, every.column("latency")[row])
    return {
        "code": code,
        "thread": thread,
        "stream": stream,
        "target": target,
        "work": work,
        "call": call,
        "latency": latency,
    }


def _ops(every: _Every, pieces: _Pieces, position: I64, ends_as: I64, meeting: Meeting) -> Ops:
    order = np.empty(len(position), dtype=np.int64)
    order[position] = np.arange(len(position))
    of_row = np.repeat(np.arange(len(pieces.row)), pieces.op_count)[order]
    op = pieces.op[order]
    piece, member, rank = pieces.piece[of_row], pieces.member[of_row], every.rank_of_op[op]
    arrives, transfers, alone = piece == _ARRIVE, piece == _TRANSFER, piece < 0
    own: dict[str, Any] = {name: every.op_column(name)[op] for name in Ops.__struct_fields__}
    own["stream"] += every.first_stream[rank].astype(np.int32)
    engine = own["engine"] + every.first_engine[rank].astype(np.int32)
    own["engine"] = np.where((own["engine"] >= 0) & alone, engine, np.int32(-1))
    own["share"][~alone] = 0
    waits = (own["after"] >= 0) & ~transfers
    after = ends_as[(every.first_op[rank] + own["after"])[waits]]
    own["after"][:] = -1
    own["after"][waits] = after
    own["duration"][arrives] = 0
    own["duration"][transfers] = meeting.transfer[member[transfers]]
    call, last = every.column("call")[pieces.row][of_row], pieces.is_last[of_row]
    own["latency"] = np.where(transfers, -np.where(last, call, 0), own["latency"] + np.where(last, 0, call))
    own["gap"][transfers] = 0
    return Ops(**own)


_MOST_DEVICES = 1 << 10


def _devices(every: _Every) -> np.ndarray:
    ranks = np.repeat(np.arange(len(every.programs)), np.diff(every.first_stream))
    devices = [program.device_of_stream for program in every.programs]
    return _device(every, ranks, np.concatenate(devices)).astype(np.int32)


def _device(every: _Every, rank: I64, device: np.ndarray) -> I64:
    """Returns the devices of ranks as numbers that no other rank has."""
    return rank * _MOST_DEVICES + np.where(every.as_one[rank], 0, np.clip(device, 0, _MOST_DEVICES - 1))
