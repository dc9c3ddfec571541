"""A summary is plain data: it survives a round trip, and a damaged one is refused."""

from __future__ import annotations

import zlib
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from fleets.jobs import job, train_ddp
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from profiles import examples

from unstall.errors import TraceError
from unstall.fleets.summarise import summarise
from unstall.fleets.summary import Summary, decode, encode, pack, unpack
from unstall.replay.engine import replay


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder: Path = tmp_path_factory.mktemp("job")
    path = job(partial(train_ddp, slow=0, cause="item"), folder, ranks=2, kernel_jitter=0.02)[0]
    return summarise(path)


@examples(50)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_columns_come_back_as_they_were(numbers: list[int]) -> None:
    assert unpack(pack(np.array(numbers, dtype=np.int64))).tolist() == numbers


@examples(50)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 2000))
def test_a_column_of_equal_numbers_takes_the_room_of_one(number: int, count: int) -> None:
    packed = pack(np.full(count, number))
    assert len(packed.data) <= 8
    assert unpack(packed).tolist() == [number] * count


def test_its_program_takes_the_time_that_was_recorded(encoded: bytes) -> None:
    rank = decode(encoded)
    times = replay(rank.program)
    assert rank.steps == 6
    assert times.mean_step_ns(rank.program) == pytest.approx(rank.summary.replay_step_ns, abs=1)
    assert rank.summary.replay_step_ns == pytest.approx(rank.summary.mean_step_ns, rel=0.01)


def test_the_costs_of_a_line_are_those_of_the_trace(encoded: bytes) -> None:
    rank = decode(encoded)
    places = {(where.file, where.line): number for number, where in enumerate(rank.summary.places)}
    costs = rank.costs
    waits = (costs.place == places["model.py", 40]) & (costs.kind == 2)
    assert int(costs.count[waits].sum()) == 6 * 4 * 5  # steps, layers, items
    kernels = (costs.place == places["train.py", 30]) & (costs.kind == 0)
    assert int(costs.count[kernels].sum()) == 6 * 4 * 10
    assert int(costs.blocks[kernels].sum()) == 6 * 4 * 10 * 64


def damaged(encoded: bytes, **changes: object) -> bytes:
    summary = msgspec.msgpack.decode(zlib.decompress(encoded), type=Summary)
    return encode(replace(summary, **changes))


def test_a_damaged_summary_is_refused(encoded: bytes) -> None:
    rank = decode(encoded)
    outside = pack(np.full(len(rank.calls), 10**6))
    bad = [
        encoded[:-10],
        b"",
        zlib.compress(b"[]"),
        damaged(encoded, version="0.0"),
        damaged(encoded, calls={**rank.summary.calls, "op": outside}),
        damaged(encoded, calls={**rank.summary.calls, "group": outside}),
        damaged(encoded, calls={**rank.summary.calls, "step": pack(np.zeros(1, np.int64))}),
        damaged(encoded, step_start=pack(np.zeros(2, np.int64))),
        damaged(encoded, step_start=replace(pack(np.zeros(6, np.int64)), alike=1 << 40)),
        damaged(encoded, step_start=replace(pack(np.zeros(6, np.int64)), data=b"")),
        damaged(encoded, costs={}),
        damaged(encoded, instructions={}),
        damaged(encoded, ops={}),
        damaged(encoded, arrivals={}),
        damaged(encoded, threads=-1),
        damaged(encoded, threads=10**12),
        damaged(encoded, engines=-1),
    ]
    for data in bad:
        with pytest.raises(TraceError):
            decode(data)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("calls", "kind", 99),
        ("calls", "kind", -1),
        ("calls", "position", 10**9),
        ("calls", "position", 4),  # of four in each step
        ("calls", "position", -1),
        ("costs", "stretch", -1),
        ("costs", "stretch", 5),
        ("instructions", "code", 99),
        ("instructions", "thread", 10**6),
        ("ops", "stream", -1),
        ("ops", "duration", -1),
    ],
)
def test_a_number_that_its_column_may_not_have_is_refused(encoded: bytes, table: str, column: str, value: int) -> None:
    packed = getattr(msgspec.msgpack.decode(zlib.decompress(encoded), type=Summary), table)
    numbers = unpack(packed[column]).copy()
    numbers[-1] = value
    with pytest.raises(TraceError):
        decode(damaged(encoded, **{table: {**packed, column: pack(numbers)}}))


def test_steps_that_are_not_in_order_are_refused(encoded: bytes) -> None:
    summary = msgspec.msgpack.decode(zlib.decompress(encoded), type=Summary)
    starts, ends = unpack(summary.step_starts), unpack(summary.step_ends)
    for changes in ({"step_starts": starts[::-1]}, {"step_ends": np.append(starts[0] - 1, ends[1:])}):
        with pytest.raises(TraceError):
            decode(damaged(encoded, **{name: pack(column) for name, column in changes.items()}))


def test_it_is_small(encoded: bytes) -> None:
    assert len(encoded) < 20_000
