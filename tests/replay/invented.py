"""Programs that no run has had: by hypothesis, and by hand, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from unstall.replay.program import Code, Instructions, Ops, Program, Recorded

WAITS = (Code.STREAM_WAIT, Code.SYNC_STREAM, Code.SYNC_DEVICE, Code.SYNC_EVENT, Code.JOIN)


@dataclass
class Op:
    duration: int
    stream: int = 0
    engine: int = -1
    share: int = 0
    blocks: int = 0
    size: int = 1
    cached: int = 0
    data: int = 0
    uncached: int = 0
    again: int = 0
    after: int = -1
    latency: int = 0
    gap: int = 0
    lag: int = 0


@dataclass
class Do:
    """One instruction."""

    code: int
    thread: int = 0
    stream: int = -1
    target: int = -1
    work: int = 0
    call: int = 0
    latency: int = 0
    ops: Sequence[Op] = field(default=())


def program(
    *instructions: Do, threads: int = 1, devices: Sequence[int] = (0,), engines: int = 0, capacity: int = 1022
) -> Program:
    """`devices` are those of the streams."""
    ops = [op for do in instructions for op in do.ops]

    def column(rows: Sequence[Any], name: str, dtype: type) -> Any:
        return np.array([getattr(row, name) for row in rows], dtype=dtype)

    return Program(
        instructions=Instructions(
            code=column(instructions, "code", np.int8),
            thread=column(instructions, "thread", np.int32),
            stream=column(instructions, "stream", np.int32),
            target=column(instructions, "target", np.int32),
            work=column(instructions, "work", np.int64),
            call=column(instructions, "call", np.int64),
            latency=column(instructions, "latency", np.int64),
            ops=np.cumsum([len(do.ops) for do in instructions], dtype=np.int64),
            host=np.full(len(instructions), -1, dtype=np.int32),
            recorded=np.zeros((len(instructions), len(Recorded)), dtype=np.int32),
        ),
        ops=Ops(
            stream=column(ops, "stream", np.int32),
            engine=column(ops, "engine", np.int32),
            share=column(ops, "share", np.int32),
            blocks=column(ops, "blocks", np.int32),
            size=column(ops, "size", np.int32),
            cached=column(ops, "cached", np.int32),
            data=column(ops, "data", np.int32),
            uncached=column(ops, "uncached", np.int64),
            again=column(ops, "again", np.int64),
            after=column(ops, "after", np.int32),
            duration=column(ops, "duration", np.int64),
            latency=column(ops, "latency", np.int64),
            gap=column(ops, "gap", np.int64),
            lag=column(ops, "lag", np.int64),
            device=np.full(len(ops), -1, dtype=np.int32),
        ),
        threads=threads,
        device_of_stream=np.array(devices, dtype=np.int32),
        engines=engines,
        capacity=capacity,
        step_starts=np.array([0]),
        step_ends=np.array([max(len(instructions) - 1, 0)]),
        thread_of=np.arange(threads, dtype=np.int32),
    )


_LENGTHS = st.integers(0, 50) | st.integers(0, 10**6)
_DELAYS = st.integers(-20, 50) | st.integers(-(10**6), 10**6)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any valid one, most of them small enough to be full of coincidences."""
    threads = draw(st.integers(1, 4))
    devices = draw(st.lists(st.sampled_from([0, 0, 1, 2, 7]), min_size=0, max_size=6))
    engines = draw(st.integers(0, 3))
    instructions: list[Do] = []
    op_count = 0
    for number in range(draw(st.integers(0, 25))):
        thread = draw(st.integers(0, threads - 1))
        records = [i for i, do in enumerate(instructions) if do.code == Code.RECORD]
        others = [i for i, do in enumerate(instructions) if do.thread != thread]
        possible = [Code.CALL, Code.SYNC_DEVICE]
        possible += [Code.LAUNCH] * 4 + [Code.RECORD, Code.RECORD, Code.SYNC_STREAM] if devices else []
        possible += [Code.STREAM_WAIT, Code.STREAM_WAIT, Code.SYNC_EVENT] if records else []
        possible += [Code.JOIN] if others else []
        code = draw(st.sampled_from(possible))
        do = Do(
            code,
            thread,
            stream=draw(st.integers(0, len(devices) - 1)) if devices else -1,
            target=number,
            work=draw(_LENGTHS),
            call=draw(_LENGTHS),
            latency=draw(_DELAYS),
        )
        if code == Code.SYNC_DEVICE:
            do.stream = draw(st.sampled_from([-1, 0, 1, 3]))
        elif code in (Code.STREAM_WAIT, Code.SYNC_EVENT):
            do.target = draw(st.sampled_from(records))
        elif code == Code.JOIN:
            do.target = draw(st.sampled_from(others))
        elif code == Code.LAUNCH:
            same = st.just(do.stream)
            do.ops = [
                Op(
                    draw(_LENGTHS),
                    stream=draw(same | st.integers(0, len(devices) - 1)),
                    engine=draw(st.integers(-1, engines - 1)),
                    share=draw(st.sampled_from([0, 0, 100, 400, 700, 1000])),
                    blocks=draw(st.sampled_from([0, 0, 10, 970, 1940, 40_000])),
                    size=draw(st.sampled_from([1, 62, 250, 984, 1000])),
                    cached=draw(st.sampled_from([0, 0, 400, 900, 3000])),
                    data=draw(st.integers(0, 3)),
                    uncached=draw(st.sampled_from([0, 0, 10, 1000])),
                    again=draw(st.sampled_from([0, 0, 5, 2000])),
                    after=draw(st.just(-1) | st.integers(-1, op_count + further - 1)),
                    latency=draw(_DELAYS),
                    gap=draw(_LENGTHS),
                    lag=draw(_DELAYS),
                )
                for further in range(draw(st.sampled_from([1, 1, 1, 2, 4, 0])))
            ]
            op_count += len(do.ops)
        instructions.append(do)
    capacity = draw(st.sampled_from([1, 2, 3, 1022]))
    return program(*instructions, threads=threads, devices=devices, engines=engines, capacity=capacity)


def random_program(count: int, seed: int = 0, *, streams: int = 8, threads: int = 4, capacity: int = 1022) -> Program:
    """A long one: mostly launches of one op, as programs are."""
    rng = np.random.default_rng(seed)
    codes = list(Code)
    shares = [0.1, 0.75, 0.04, 0.04, 0.02, 0.02, 0.02, 0.01]
    code = rng.choice(codes, size=count, p=shares).astype(np.int8)
    code[0] = Code.RECORD
    rows = np.arange(count)
    thread = rng.choice(threads, size=count, p=[0.7, *[0.3 / (threads - 1)] * (threads - 1)]).astype(np.int32)
    stream = rng.choice(streams, size=count, p=[0.8, *[0.2 / (streams - 1)] * (streams - 1)]).astype(np.int32)
    stream[code == Code.SYNC_DEVICE] = rng.integers(-1, 2, size=int((code == Code.SYNC_DEVICE).sum()))
    target = np.maximum.accumulate(np.where(code == Code.RECORD, rows, 0))  # the last record
    target[code == Code.JOIN] = np.maximum(rows[code == Code.JOIN] - 1, 0)
    code[(code == Code.JOIN) & (thread[target] == thread)] = Code.CALL
    ops = np.where(code == Code.LAUNCH, rng.choice([1, 1, 1, 1, 1, 1, 1, 1, 1, 5], size=count), 0)
    ends = np.cumsum(ops)
    total = int(ends[-1])
    after = np.where(rng.random(total) < 0.05, np.arange(total) - rng.integers(1, 50, size=total), -1)
    return Program(
        instructions=Instructions(
            code=code,
            thread=thread,
            stream=stream,
            target=target.astype(np.int32),
            work=rng.integers(0, 5_000, size=count),
            call=rng.integers(0, 5_000, size=count),
            latency=rng.integers(-1_000, 6_000, size=count),
            ops=ends,
            host=np.full(count, -1, dtype=np.int32),
            recorded=np.zeros((count, len(Recorded)), dtype=np.int32),
        ),
        ops=Ops(
            stream=stream[np.repeat(rows, ops)],
            engine=rng.choice([-1, -1, -1, -1, 0, 1], size=total).astype(np.int32),
            share=rng.choice([0, 0, 1, 250, 700, 1000], size=total).astype(np.int32),
            blocks=rng.choice([0, 500, 970, 2_000], size=total).astype(np.int32),
            size=rng.choice([62, 250, 984], size=total).astype(np.int32),
            cached=rng.choice([0, 400, 700], size=total).astype(np.int32),
            data=rng.integers(0, 3, size=total).astype(np.int32),
            uncached=rng.choice([0, 10], size=total),
            again=rng.choice([0, 5], size=total),
            after=np.maximum(after, -1).astype(np.int32),
            duration=1_000 * rng.integers(0, 20, size=total),
            latency=rng.integers(0, 3_000, size=total),
            gap=rng.integers(0, 2_000, size=total),
            lag=rng.integers(-500, 2_000, size=total),
            device=np.full(total, -1, dtype=np.int32),
        ),
        threads=threads,
        device_of_stream=(np.arange(streams) % 2).astype(np.int32),
        engines=2,
        capacity=capacity,
        step_starts=np.array([0]),
        step_ends=np.array([count - 1]),
        thread_of=np.arange(threads, dtype=np.int32),
    )
