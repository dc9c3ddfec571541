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
    offsets = [0] * len(programs) if offsets is None else offsets
    first = np.cumsum([0, *(len(program.ops) for program in programs)])
    member = np.full(int(first[-1]), -1, dtype=np.int64)
    member[first[meeting.rank] + meeting.op] = np.arange(len(meeting.rank))
    joint = np.split(member, first[1:-1])
    operation = np.repeat(np.arange(len(meeting)), np.diff(meeting.first))
    parts = [
        _Part.of(program, each, meeting, operation, offset)
        for program, each, offset in zip(programs, joint, offsets, strict=True)
    ]
    order, uncoupled = _order(parts, meeting)
    if len(uncoupled):
        # Their members keep the length that they had, and wait for nobody.
        kept = np.ones(len(meeting), dtype=np.bool_)
        kept[uncoupled] = False
        coupled = couple(programs, without(meeting, kept), offsets)
        return replace(coupled, uncoupled=coupled.uncoupled + len(uncoupled))
    return _assembled(programs, parts, order, meeting)


def without(meeting: Meeting, kept: Bool) -> Meeting:
    """Returns a `Meeting` with only some of the joint operations of `meeting`. `kept` is a mask with one value for each
    joint operation: True if the operation is kept."""
    sizes = np.diff(meeting.first)
    of_member = np.repeat(kept, sizes)
    first = np.append(0, np.cumsum(sizes[kept]))
    return Meeting(first, meeting.rank[of_member], meeting.op[of_member], meeting.transfer[of_member])


class _Part(msgspec.Struct, frozen=True, eq=False):
    """The rows (instructions) of one rank in the coupled program. They are the instructions of the rank's own program,
    but each launch of a joint operation is split into pieces: ARRIVE, RECORD, WAIT, TRANSFER.

    Attributes:
        program: The rank's own program.
        row: For each row, the index of its instruction in `program`.
        piece: For each row, the number of the piece. -1 if the instruction is not split.
        member: For each row, the member of the joint operation whose piece it is, or -1.
        op_first: For each row, the index of its first op in `op`.
        op_count: For each row, the number of its ops.
        op: For each op in the coupled program, the index of the op in `program`.
        chunk: For each row, the number of joint operations of this rank that begin before it.
        meets: For each chunk but the last, the joint operation that ends the chunk.
        offset: How much later the program begins than that of the first rank to begin, in ns.
    """

    program: Program
    row: I64
    piece: I64
    member: I64
    op_first: I64
    op_count: I64
    op: I64
    chunk: I64
    meets: I64
    offset: int

    @property
    def is_last(self) -> Bool:
        """A mask with one value for each row: True if the row is the last piece of its instruction."""
        return np.append(self.row[1:] != self.row[:-1], True)[: len(self.row)]

    @classmethod
    def of(cls, program: Program, joint: I64, meeting: Meeting, operation: I64, offset: int) -> _Part:
        do, launcher = program.instructions, program.launcher
        is_joint = joint >= 0
        # A launch with several ops is cut before and after each joint one.
        cut = np.diff(launcher, prepend=-1) != 0
        cut |= is_joint | np.append(False, is_joint[:-1])[: len(cut)]
        segments = np.bincount(launcher[cut], minlength=len(do)).astype(np.int64)
        rows = np.repeat(np.arange(len(do)), np.maximum(segments, 1))
        has_ops = np.repeat(segments > 0, np.maximum(segments, 1))
        first_op = np.full(len(rows), -1, dtype=np.int64)
        first_op[has_ops] = np.flatnonzero(cut)
        count = np.zeros(len(rows), dtype=np.int64)
        count[has_ops] = np.diff(np.append(np.flatnonzero(cut), len(launcher)))
        member = np.where(first_op >= 0, joint[np.maximum(first_op, 0)], -1) if len(joint) else first_op

        times = np.where(member >= 0, _PIECES, 1)
        at = np.repeat(np.arange(len(rows)), times)
        start = np.cumsum(times) - times
        piece = np.where(member[at] >= 0, np.arange(len(at)) - start[at], -1)
        op_count = np.where(np.isin(piece, (_RECORD, _WAIT)), 0, count[at])
        source = np.repeat(first_op[at], op_count)
        within = np.arange(int(op_count.sum())) - np.repeat(np.cumsum(op_count) - op_count, op_count)
        records = piece == _RECORD
        return cls(
            program=program,
            row=rows[at],
            piece=piece,
            member=member[at],
            op_first=np.cumsum(op_count) - op_count,
            op_count=op_count,
            op=source + within,
            chunk=np.cumsum(records) - records,
            meets=operation[member[at][records]],
            offset=int(offset),
        )


def _order(parts: Sequence[_Part], meeting: Meeting) -> tuple[list[tuple[int, int]], I64]:
    """Finds an order of the ranks' chunks in which each chunk comes after everything it depends on. A chunk is the part
    of a rank's program between two joint operations.

    Returns `(order, stuck)`. `order` has a pair (rank, chunk) for each chunk. It has a pair (-1, operation) for each
    joint operation, at the position at which all its members have arrived. `stuck` has the joint operations at which
    ranks wait for each other in a cycle.
    """
    sizes = np.diff(meeting.first).tolist()
    members = np.split(meeting.rank, meeting.first[1:-1]) if len(meeting) else []
    arrived = [0] * len(meeting)
    meets = [part.meets.tolist() for part in parts]
    at = [0] * len(parts)
    order: list[tuple[int, int]] = []
    ready = deque(range(len(parts)))
    while ready:
        rank = ready.popleft()
        chunk = at[rank]
        order.append((rank, chunk))
        at[rank] += 1
        if chunk == len(meets[rank]):
            continue
        operation = meets[rank][chunk]
        arrived[operation] += 1
        if arrived[operation] == sizes[operation]:
            order.append((-1, operation))
            ready.extend(members[operation].tolist())
    stuck = [operation for operation, size in enumerate(sizes) if 0 < arrived[operation] < size]
    return order, np.array(stuck, dtype=np.int64)


def _assembled(
    programs: Sequence[Program], parts: Sequence[_Part], order: list[tuple[int, int]], meeting: Meeting
) -> Coupled:
    threads = np.cumsum([0, *(program.threads for program in programs)])
    streams = np.cumsum([0, *(len(program.device_of_stream) for program in programs)])
    engines = np.cumsum([0, *(program.engines for program in programs)])

    # The leader's rows of each operation: it waits for each other member, and passes on a mark.
    sizes = np.diff(meeting.first)
    leader = meeting.first[:-1]
    gathers = np.repeat(np.arange(len(meeting)), sizes)  # one row a member: waits, and the mark in the leader's place
    turn = {key: number for number, key in enumerate(order)}
    when_met = np.array([turn[-1, operation] for operation in range(len(meeting))], dtype=np.int64)

    tables = []
    for rank, part in enumerate(parts):
        chunk_turn = np.array([turn[rank, chunk] for chunk in range(len(part.meets) + 1)], dtype=np.int64)
        tables.append(
            np.stack(
                [
                    chunk_turn[part.chunk],
                    np.full(len(part.row), rank),
                    np.arange(len(part.row)),
                ]
            )
        )
    is_mark = np.zeros(len(gathers), dtype=np.bool_)
    is_mark[leader] = True
    within = np.arange(len(gathers)) - np.repeat(leader, sizes)
    # In a leader's rows, the mark is last.
    tables.append(
        np.stack(
            [
                when_met[gathers],
                np.full(len(gathers), len(parts)),
                np.repeat(leader, sizes) * 2 + np.where(is_mark, sizes[gathers], within),
            ]
        )
    )
    keys = np.concatenate(tables, axis=1)
    position = np.empty(keys.shape[1], dtype=np.int64)
    position[np.lexsort((keys[2], keys[1], keys[0]))] = np.arange(keys.shape[1])
    starts = np.cumsum([0, *(table.shape[1] for table in tables)])
    new_row = [position[starts[index] : starts[index + 1]] for index in range(len(tables))]

    # Where each member's mark stands, and each operation's.
    mark_of = np.full(len(meeting.rank), -1, dtype=np.int64)
    for rank, part in enumerate(parts):
        records = part.piece == _RECORD
        mark_of[part.member[records]] = new_row[rank][records]
    met = new_row[-1][leader]
    total = keys.shape[1]
    columns = {name: np.zeros(total, dtype=np.int64) for name in ("work", "call", "latency", "ops")}
    narrow = {name: np.full(total, -1, dtype=np.int64) for name in ("code", "thread", "stream", "target", "host")}
    op_position: list[I64] = []
    counts = np.zeros(total, dtype=np.int64)
    for rank, part in enumerate(parts):
        counts[new_row[rank]] = part.op_count
    ends = np.cumsum(counts)
    row_of, arrives, ends_as, op_steps, step_rows = [], [], [], [], []
    for rank, part in enumerate(parts):
        _fill(rank, part, (new_row[rank], met, leader), (threads, streams), columns, narrow, meeting, mark_of)
        at = new_row[rank]
        first = ends[at] - counts[at]
        op_position.append(
            np.repeat(first, part.op_count) + np.arange(len(part.op)) - np.repeat(part.op_first, part.op_count)
        )
        program = part.program
        last = np.full(len(program.instructions), -1, dtype=np.int64)
        last[part.row] = at  # the last piece of each row
        row_of.append(last)
        where = op_position[rank]
        begin, end = np.full(len(program.ops), -1, np.int64), np.full(len(program.ops), -1, np.int64)
        begin[part.op[::-1]] = where[::-1]
        end[part.op] = where
        arrives.append(begin)
        ends_as.append(end)
        op_steps.append(program.step_of(program.launcher))
        step_rows.append((program.step_starts, program.step_ends))
    # Targets are rows of the rank's own program until here.
    for rank, part in enumerate(parts):
        at = new_row[rank]
        own = (part.piece < 0) & (narrow["target"][at] >= 0)
        narrow["target"][at[own]] = row_of[rank][narrow["target"][at[own]]]
    waits = new_row[-1][~is_mark]
    boss = leader[gathers]
    narrow["code"][new_row[-1]] = np.where(is_mark, Code.RECORD, Code.STREAM_WAIT)
    narrow["thread"][new_row[-1]] = threads[meeting.rank[boss]]
    first_op = np.cumsum([0, *(len(each.ops) for each in programs)])
    on = np.concatenate([each.ops.stream for each in programs])[first_op[meeting.rank[leader]] + meeting.op[leader]]
    on = on.astype(np.int64) + streams[meeting.rank[leader]]
    narrow["stream"][new_row[-1]] = on[gathers]
    narrow["target"][waits] = mark_of[~is_mark]

    columns["ops"] = ends
    instructions = Instructions(
        code=narrow["code"].astype(np.int8),
        thread=narrow["thread"].astype(np.int32),
        stream=narrow["stream"].astype(np.int32),
        target=narrow["target"].astype(np.int32),
        host=narrow["host"].astype(np.int32),
        recorded=np.zeros((0, len(Recorded)), dtype=np.int32),
        **columns,
    )
    ops = _ops(parts, op_position, ends_as, (streams, engines), int(ends[-1]) if total else 0, meeting)
    first = np.array([row_of[0][programs[0].step_starts[0]]]) if programs else np.zeros(0, np.int64)
    program = Program(
        instructions=instructions,
        ops=ops,
        threads=int(threads[-1]),
        device_of_stream=_devices(programs),
        engines=int(engines[-1]),
        capacity=max(program.capacity for program in programs),
        step_starts=first,
        step_ends=np.array([total - 1]),
        thread_of=np.arange(int(threads[-1]), dtype=np.int32),
    )
    return Coupled(
        program, tuple(row_of), tuple(arrives), tuple(ends_as), tuple(step_rows), tuple(op_steps), uncoupled=0
    )


def _fill(
    rank: int,
    part: _Part,
    rows: tuple[I64, I64, I64],
    bases: tuple[I64, I64],
    columns: dict[str, I64],
    narrow: dict[str, I64],
    meeting: Meeting,
    mark_of: I64,
) -> None:
    """Writes the instructions of one rank into the columns of the coupled program's instructions."""
    at, met, leader = rows
    threads, streams = bases
    program, do = part.program, part.program.instructions
    piece, row = part.piece, part.row
    again = np.append(False, row[1:] == row[:-1])[: len(row)]
    code = do.code[row].astype(np.int64)
    code[(piece == _RECORD)] = Code.RECORD
    code[(piece == _WAIT)] = Code.STREAM_WAIT
    stream = do.stream[row].astype(np.int64)
    joint = piece >= 0
    stream[joint] = program.ops.stream[meeting.op[part.member[joint]]]
    on_stream = np.isin(code, (Code.LAUNCH, Code.RECORD, Code.STREAM_WAIT, Code.SYNC_STREAM))
    stream = np.where(on_stream & (stream >= 0), stream + streams[rank], stream)
    device = code == Code.SYNC_DEVICE
    stream[device] = _device(rank, program, do.stream[row][device])
    # The call's time belongs to its last piece, since an op may start before its call returns.
    work, call = np.where(again, 0, do.work[row]), np.where(part.is_last, do.call[row], 0)
    if part.offset:
        for thread in np.unique(do.thread):
            first = int(np.flatnonzero(do.thread[row] == thread)[0])
            work[first] += part.offset
    target = np.where(np.isin(code, (Code.STREAM_WAIT, Code.SYNC_EVENT, Code.JOIN)), do.target[row], -1)
    target = target.astype(np.int64)
    waits = piece == _WAIT
    operation = np.searchsorted(meeting.first, part.member[waits], side="right") - 1
    target[waits] = met[operation]
    # The leader has waited for everybody by itself.
    code[waits] = np.where(leader[operation] == part.member[waits], Code.CALL, Code.STREAM_WAIT)
    columns["work"][at], columns["call"][at] = work, call
    columns["latency"][at] = np.where(piece >= 0, 0, do.latency[row])
    narrow["code"][at], narrow["thread"][at] = code, do.thread[row] + threads[rank]
    narrow["stream"][at], narrow["target"][at] = stream, target
    narrow["host"][at] = -1


def _ops(
    parts: Sequence[_Part],
    positions: list[I64],
    ends_as: list[I64],
    bases: tuple[I64, I64],
    total: int,
    meeting: Meeting,
) -> Ops:
    streams, engines = bases
    names = (
        "stream",
        "engine",
        "share",
        "blocks",
        "size",
        "cached",
        "after",
        "duration",
        "latency",
        "gap",
        "lag",
        "tail",
        "uncached",
        "device",
    )
    columns: dict[str, Any] = {name: np.zeros(total, dtype=np.int64) for name in names}
    for rank, part in enumerate(parts):
        own, at = part.program.ops, positions[rank]
        piece = np.repeat(part.piece, part.op_count)
        member = np.repeat(part.member, part.op_count)
        arrives, transfers = piece == _ARRIVE, piece == _TRANSFER
        for name in names:
            columns[name][at] = getattr(own, name)[part.op]
        columns["stream"][at] += streams[rank]
        engine = own.engine[part.op]
        columns["engine"][at] = np.where((engine >= 0) & (piece < 0), engine + engines[rank], -1)
        columns["share"][at] = np.where(piece < 0, own.share[part.op], 0)
        after = own.after[part.op]
        columns["after"][at] = np.where((after >= 0) & ~transfers, ends_as[rank][np.maximum(after, 0)], -1)
        columns["duration"][at[arrives]] = 0
        columns["duration"][at[transfers]] = meeting.transfer[member[transfers]]
        call, last = part.program.instructions.call[part.row], part.is_last
        columns["latency"][at] += np.repeat(np.where(last, 0, call), part.op_count)
        columns["latency"][at[transfers]] = -np.repeat(np.where(last, call, 0), part.op_count)[transfers]
        columns["gap"][at[transfers]] = 0
    for name in ("stream", "engine", "share", "blocks", "size", "cached", "after", "device"):
        columns[name] = columns[name].astype(np.int32)
    return Ops(**columns)


def _devices(programs: Sequence[Program]) -> np.ndarray:
    parts = [_device(rank, program, program.device_of_stream) for rank, program in enumerate(programs)]
    return np.concatenate(parts).astype(np.int32)


_MOST_DEVICES = 1 << 10


def _device(rank: int, program: Program, device: np.ndarray) -> np.ndarray:
    """Returns the numbers of a rank's devices in the coupled program. No other rank has these numbers.

    In the rank's own program, -1 stands for all devices of the rank. A wait for all devices must not wait for other
    ranks. So if the program has such a wait, all devices of the rank get the same number.
    """
    do = program.instructions
    every = ((do.code == Code.SYNC_DEVICE) & (do.stream < 0)).any()
    return rank * _MOST_DEVICES + np.where(every, 0, np.clip(device, 0, _MOST_DEVICES - 1))
