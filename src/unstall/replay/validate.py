"""Checks that a `Program` can be replayed. `native/checks.c` makes the same checks, and its messages are the same."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import msgspec
import numpy as np

from unstall.replay.meeting import Meeting
from unstall.replay.program import WHOLE, Code, Program
from unstall.timeline.columns import I8, I32, I64, Bool

MOST_NS = 1 << 62
"""Largest sum of all times of a program, in ns.

Each replayed time is a sum of different times of the program. If all times of the program add up to at most this limit,
no replayed time overflows.
"""
MOST_THREADS = 1 << 24
MOST_CAPACITY = (1 << 31) - 1

_COLUMNS: dict[str, dict[type, tuple[str, ...]]] = {
    "instructions": {
        np.int8: ("code",),
        np.int32: ("thread", "stream", "target"),
        np.int64: ("work", "call", "latency", "ops"),
    },
    "ops": {
        np.int32: ("stream", "engine", "share", "blocks", "size", "cached", "data", "after"),
        np.int64: ("duration", "latency", "gap", "lag", "uncached", "again"),
    },
}
_ON_STREAM = (Code.LAUNCH, Code.RECORD, Code.STREAM_WAIT, Code.SYNC_STREAM)
_OF_RECORD = (Code.STREAM_WAIT, Code.SYNC_EVENT)

_Column = I8 | I32 | I64


class Before(msgspec.Struct, frozen=True, eq=False):
    """Totals of the parts of a program that were already checked."""

    code: I8 = msgspec.field(default_factory=lambda: np.zeros(0, np.int8))
    thread: I32 = msgspec.field(default_factory=lambda: np.zeros(0, np.int32))
    ops: int = 0
    total_ns: int = 0
    threads: int = 0
    engines: int = 0
    device_of_stream: I32 = msgspec.field(default_factory=lambda: np.zeros(0, np.int32))


def check(program: Program, before: Before | None = None) -> Before:
    """Checks a whole program, or the next part of a program that is replayed part by part. Returns
    the totals of all parts so far.

    The columns `latency` and `lag` may have negative values, because a wait can end early. If the
    code of an instruction does not use a column, any value is valid in this column.

    Args:
        program: The program, or the part.
        before: The totals of the earlier parts; None for the first part or a whole program.

    Raises:
        ValueError: The program is invalid. The message describes the first error.
    """
    _check_columns(program)
    _check_count("threads", program.threads, 0, MOST_THREADS)
    _check_count("engines", program.engines, 0, MOST_THREADS)
    _check_count("capacity", program.capacity, 1, MOST_CAPACITY)
    before = before or Before()
    _check_counts(program, before)
    _check_instructions(program, before)
    _check_ops(program, before)
    do, ops = program.instructions, program.ops
    times = (do.work, do.call, do.latency, ops.duration, ops.latency, ops.gap, ops.lag, ops.uncached, ops.again)
    total = before.total_ns + sum(_total(column) for column in times)
    if total > MOST_NS:
        raise ValueError("the program's times add up to more than 2**62 ns")
    return Before(
        np.concatenate((before.code, do.code)),
        np.concatenate((before.thread, do.thread)),
        before.ops + len(ops),
        total,
        operator.index(program.threads),
        operator.index(program.engines),
        program.device_of_stream.copy(),
    )


def check_job(programs: Sequence[Program], meeting: Meeting, offsets: I64, total_ns: int) -> None:
    """Checks the joint operations of valid programs.

    Args:
        programs: The programs.
        meeting: Their joint operations.
        offsets: For each program, when its threads begin, in ns.
        total_ns: The sum of all times of the programs, in ns.

    Raises:
        ValueError: The operations or the offsets are invalid. The message describes the first error.
    """
    first, rank, op, waits, transfer = meeting.first, meeting.rank, meeting.op, meeting.waits, meeting.transfer
    columns = {"first": first, "program": rank, "op": op, "waits": waits, "transfer": transfer, "offsets": offsets}
    for name, column in columns.items():
        type_ = np.int8 if name == "waits" else np.int64
        if not _is_column(column, type_):
            raise ValueError(f"{name} must be one contiguous column of {type_.__name__}")
    if not len(first) or {len(op), len(waits), len(transfer)} != {len(rank)} or len(offsets) != len(programs):
        raise ValueError("the columns of joint operations differ in length")
    _refuse("program", 0, (offsets < 0, "it begins at {} ns", offsets))
    least = np.append(0, first[:-1])
    wrong = (first < least) | (first > len(rank))
    wrong[0] |= bool(first[0])
    _refuse("operation", 0, (wrong, "its members begin at {}", first))
    if first[-1] != len(rank):
        raise ValueError(f"the operations' members end at {first[-1]}, and there are {len(rank)}")
    unknown = _outside(rank, len(programs))
    ops = np.array([len(program.ops) for program in programs], dtype=np.int64)
    counts = ops[np.where(unknown, 0, rank)] if len(ops) else np.zeros_like(rank)
    _refuse(
        "member",
        0,
        (unknown, "program {} is none of {}", rank, len(programs)),
        ((op < 0) | (op >= counts), "op {} is none of its program's {}", op, counts),
        (transfer < 0, "its transfer is negative, {} ns", transfer),
    )
    if total_ns + _total(transfer) + _total(offsets) > MOST_NS:
        raise ValueError("the programs' times add up to more than 2**62 ns")


def _check_columns(program: Program) -> None:
    columns = [
        (f"{table}.{name}", getattr(getattr(program, table), name), type_)
        for table, types in _COLUMNS.items()
        for type_, names in types.items()
        for name in names
    ]
    columns.append(("device_of_stream", program.device_of_stream, np.int32))
    for name, column, type_ in columns:
        if not _is_column(column, type_):
            raise ValueError(f"{name} must be one contiguous column of {type_.__name__}")
    first, length = "", 0
    for name, column, _ in columns:
        if name in ("instructions.code", "ops.stream", "device_of_stream"):
            first, length = name, len(column)
        elif len(column) != length:
            raise ValueError(f"{name} has {len(column)} rows, and {first} has {length}")


def _is_column(column: object, type_: type) -> bool:
    return (
        isinstance(column, np.ndarray)
        and column.dtype == type_
        and column.ndim == 1
        and bool(column.flags.c_contiguous and (column.flags.aligned or not len(column)))
    )


def _check_count(name: str, count: int, least: int, most: int) -> None:
    if not least <= operator.index(count) <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {count}")


def _check_counts(program: Program, before: Before) -> None:
    streams, known = program.device_of_stream, before.device_of_stream
    for what, now, then in (
        ("threads", program.threads, before.threads),
        ("engines", program.engines, before.engines),
        ("streams", len(streams), len(known)),
    ):
        if now < then:
            raise ValueError(f"there were {then} {what} before, and now {operator.index(now)}")
    moved = np.flatnonzero(streams[: len(known)] != known)
    if len(moved):
        row = int(moved[0])
        raise ValueError(f"stream {row} is of device {streams[row]}, and was of {known[row]}")


def _check_instructions(program: Program, so_far: Before) -> None:
    do, rows = program.instructions, len(so_far.code) + np.arange(len(program.instructions))
    streams, ops = len(program.device_of_stream), len(program.ops)
    before = np.append(0, do.ops[:-1])[: len(do)]
    earlier = (do.target >= 0) & (do.target < rows)
    target = np.where(earlier, do.target, 0)
    codes, threads = np.concatenate((so_far.code, do.code)), np.concatenate((so_far.thread, do.thread))
    _refuse(
        "instruction",
        len(so_far.code),
        ((do.code < 0) | (do.code > max(Code)), "there is no code {}", do.code),
        (_outside(do.thread, program.threads), "thread {} is none of the program's {}", do.thread, program.threads),
        (
            np.isin(do.code, _ON_STREAM) & _outside(do.stream, streams),
            "stream {} is none of the program's {}",
            do.stream,
            streams,
        ),
        (
            (do.code == Code.SYNC_DEVICE) & (do.stream < -1),
            "{} is neither a device nor -1, which is every device",
            do.stream,
        ),
        (
            np.isin(do.code, _OF_RECORD) & ~(earlier & (codes[target] == Code.RECORD)),
            "its target {} is not an earlier RECORD",
            do.target,
        ),
        (
            (do.code == Code.JOIN) & ~(earlier & (threads[target] != do.thread)),
            "its target {} is not an earlier instruction of another thread",
            do.target,
        ),
        (do.work < 0, "its work is negative, {} ns", do.work),
        (do.call < 0, "its call is negative, {} ns", do.call),
        (do.ops < before, "its ops end at {}, before they begin at {}", do.ops, before),
        (do.ops > ops, "its ops end at {}, and there are {}", do.ops, ops),
        ((do.ops > before) & (do.code != Code.LAUNCH), "it has ops and is not a LAUNCH"),
    )
    last = int(do.ops[-1]) if len(do) else 0
    if last != ops:
        raise ValueError(f"the instructions' ops end at {last}, and there are {ops}")


def _check_ops(program: Program, before: Before) -> None:
    ops, rows = program.ops, before.ops + np.arange(len(program.ops))
    streams, engines = len(program.device_of_stream), program.engines
    _refuse(
        "op",
        before.ops,
        (_outside(ops.stream, streams), "stream {} is none of the program's {}", ops.stream, streams),
        ((ops.engine < -1) | (ops.engine >= engines), "engine {} is none of the program's {}", ops.engine, engines),
        ((ops.share < 0) | (ops.share > WHOLE), "it takes {} thousandths of an engine", ops.share),
        (ops.blocks < 0, "it has {} blocks", ops.blocks),
        ((ops.size < 1) | (ops.size > WHOLE), "its blocks fill {} thousandths of a multiprocessor", ops.size),
        (ops.cached < 0, "it uses {} thousandths of the cache", ops.cached),
        (ops.uncached < 0, "without the cache it takes {} ns more", ops.uncached),
        (ops.again < 0, "repeated, it takes {} ns", ops.again),
        ((ops.after < -1) | (ops.after >= rows), "it follows op {}, which is not an earlier one", ops.after),
        (ops.duration < 0, "its duration is negative, {} ns", ops.duration),
        (ops.gap < 0, "its gap is negative, {} ns", ops.gap),
    )


def _outside(numbers: I32 | I64, count: int) -> Bool:
    wrong: Bool = (numbers < 0) | (numbers >= count)
    return wrong


def _refuse(what: str, first: int, *faults: tuple[Bool, str, *tuple[_Column | int, ...]]) -> None:
    """Raises ValueError for the first row with a fault. Does nothing if there is none.

    Args:
        what: The word for a row in messages, such as "op".
        first: The number of the first row in messages.
        faults: For each possible fault: (mask of the faulty rows, message, values for the message).
    """
    found = [(int(wrong.argmax()), number) for number, (wrong, *_) in enumerate(faults) if wrong.any()]
    if found:
        row, number = min(found)
        wrong, sentence, *figures = faults[number]
        said = (int(np.broadcast_to(figure, wrong.shape)[row]) for figure in figures)
        raise ValueError(f"{what} {first + row}: {sentence.format(*said)}")


def _total(column: I64) -> int:
    """Returns the exact sum of the absolute values.

    Sums the high and low 32 bits separately, so that no sum overflows.
    """
    magnitude = np.abs(column).view(np.uint64)
    return (int((magnitude >> np.uint64(32)).sum()) << 32) + int((magnitude & np.uint64(0xFFFFFFFF)).sum())
