"""The slowdown of published jobs, by the replay of a job's ranks.

Usage: python -m benchmarks.stragglers JOB.parquet… [--expect JOB.json…]

Reads jobs in the form of github.com/ByteDance-Seed/StragglerAnalysis, the artefact of "Understanding Stragglers in
Large Model Training Using What-if Analysis": one row for each operation of a (data-parallel, pipeline) rank. Needs
pyarrow. With `--expect`, compares with the artefact's own result: S, and the stage and the replica with the largest
slowdown of their own.

Each rank becomes a program of launches without a host: operations of one stream follow one another, and wait for those
that the paper's dependency model names. The engine replays the ranks, which wait for each other. In the
ideal job each computing operation takes its mean over ranks, stages and steps, each transfer its median (Section 3).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from unstall.replay.engine import replay_job
from unstall.replay.meeting import Meeting
from unstall.replay.program import Code, Instructions, Ops, Program, Recorded

_CLOCK_ERROR_S = 5e-5  # between machines: the artefact's own
_PAIRED = ("forward-send", "forward-recv", "backward-send", "backward-recv")
_REPLICATED = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
_LAYER_NORM, _EMBEDDING = "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
_CLIP, _LAST = "optimizer-clip-main-grad", "optimizer"
_TRANSFERS = (*_PAIRED, *_REPLICATED, _LAYER_NORM, _EMBEDDING, _CLIP)
_COMPUTES = ("forward-compute", "backward-compute")


class Op(NamedTuple):
    """An operation of a stage of the pipeline. All steps and replicas have the same operations."""

    type: str
    number: int
    stage: int


@dataclass(frozen=True)
class Table:
    """The operations that a job ran.

    Attributes:
        key: For each row, the operation.
        columns: By the name of a column, its values as an array. Times are in seconds.
    """

    key: list[Op]
    columns: dict[str, np.ndarray]

    def where(self, mask: np.ndarray) -> Table:
        rows = np.flatnonzero(mask)
        return Table([self.key[row] for row in rows], {name: column[rows] for name, column in self.columns.items()})


def read(path: Path) -> Table:
    """Returns the table of a job's operations from its file."""
    table = import_module("pyarrow.parquet").read_table(path)
    columns = {name: table[name].to_numpy() for name in table.column_names if name != "optype"}
    types = table["optype"].to_pylist()
    numbers, stages = columns["seq_id"].tolist(), columns["stage"].tolist()
    columns["start"] = columns["start_ts"].astype(np.float64)
    columns["end"] = columns["start"] + columns["duration"].astype(np.float64)
    return Table([Op(*each) for each in zip(types, numbers, stages, strict=True)], columns)


class Model:
    """What each operation waits for, on its own rank and on others. All replicas and steps have the
    same model.
    """

    def __init__(self, table: Table) -> None:
        self.waits: dict[Op, list[Op]] = defaultdict(list)
        self.groups: list[list[Op]] = []
        columns = table.columns
        self.stages = int(columns["stage"].max()) + 1
        self._at = {op: row for row, op in enumerate(table.key)}
        self._columns = columns
        overlapped = any(op.type == "separate-grads-all-reduce" for op in table.key)
        replicated = any(op.type in _REPLICATED for op in table.key)
        paired: dict[tuple[str, int], list[Op]] = {}
        for stage in range(self.stages):
            mine = sorted((op for op in table.key if op.stage == stage), key=self._started)
            computes = [op for op in mine if op.type in _COMPUTES]
            self._chain(computes)
            for kind in _PAIRED:
                ops = [op for op in mine if op.type == kind]
                self._chain(ops)
                paired[kind, stage] = list(self._match(kind, ops, computes))
            self._first_backward(mine, computes)
            self._chain([op for op in mine if op.type in ("params-all-gather", "grads-reduce-scatter")])
            if replicated:
                self._chunks(mine, overlapped)
            self._end(mine, computes, overlapped, replicated)
        for way, ahead in (("forward", 1), ("backward", -1)):
            for stage in range(self.stages):
                peer = (stage + ahead) % self.stages
                pairs = zip(paired[f"{way}-send", stage], paired[f"{way}-recv", peer], strict=False)
                self.groups += [list(pair) for pair in pairs]
        ends = [op for op in table.key if op.type == _EMBEDDING]
        self.groups += [ends] if len(ends) > 1 else []
        self.order = self._sorted(table.key)

    def _started(self, op: Op) -> tuple[float, int, str]:
        return float(self._columns["start"][self._at[op]]), op.number, op.type

    def _of(self, op: Op, column: str) -> float:
        return float(self._columns[column][self._at[op]])

    def _chain(self, ops: Sequence[Op]) -> None:
        for before, after in pairwise(ops):
            self.waits[after].append(before)

    def _match(self, kind: str, ops: Sequence[Op], computes: Sequence[Op]) -> Iterator[Op]:
        """Finds which operation each send and each receive carries data from or to. Yields the
        sends or receives that carry something, in order.

        A profiler also writes calls that were never launched, at the ends of the model. They are
        before the first or after the last computation, and are left out.
        """
        way, end = kind.split("-")
        of_way = sorted((op for op in computes if op.type == f"{way}-compute"), key=lambda op: op.number)
        chunks = self.stages * (int(self._columns["mc"].max()) + 1)
        last = max(self._of(op, "start") for op in of_way)
        first = min(self._of(op, "end") for op in of_way)
        real = [
            op
            for op in ops
            if (
                self._of(op, "start") <= last + _CLOCK_ERROR_S
                if end == "recv"
                else self._of(op, "end") >= first - _CLOCK_ERROR_S
            )
        ]
        begin = len(of_way) - len(real) if end == "recv" and len(real) + 1 == len(of_way) else 0
        ahead = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}[kind]
        for op, compute in zip(real, of_way[begin:], strict=False):
            if end == "send":
                self.waits[op].append(compute)
            else:
                self.waits[compute].append(op)
                if compute.number:
                    self.waits[op].append(compute._replace(number=compute.number - 1))
            if 0 <= int(self._of(compute, "gmc")) + ahead < chunks:
                yield op

    def _first_backward(self, mine: Sequence[Op], computes: Sequence[Op]) -> None:
        first = next((at for at, op in enumerate(computes) if op.type == "backward-compute"), 0)
        if first >= 2:
            for op in mine:
                if op.type in ("backward-send", "backward-recv") and op.number == 0:
                    self.waits[op].append(computes[first - 2])

    def _chunks(self, mine: Sequence[Op], overlapped: bool) -> None:
        """Ties the collectives for parameters and gradients to the computations. Parameters come
        before the first forward of their chunk of the model. If they overlap with the computation,
        gradients leave after the last backward of their chunk.
        """
        for kind, compute, pick in (
            ("params-all-gather", "forward-compute", min),
            ("grads-reduce-scatter", "backward-compute", max),
        ):
            if kind == "grads-reduce-scatter" and not overlapped:
                continue
            ops = sorted((op for op in mine if op.type == kind), key=lambda op: op.number)
            done: set[float] = set()
            for op in reversed(ops) if pick is min else ops:
                chunk = self._of(op, "mc")
                if chunk in done:
                    continue
                done.add(chunk)
                alike = [each for each in mine if each.type == compute and self._of(each, "mc") == chunk]
                if pick is min:
                    self.waits[min(alike, key=lambda each: self._of(each, "start"))].append(op)
                else:
                    self.waits[op].append(max(alike, key=lambda each: self._of(each, "end")))

    def _end(self, mine: Sequence[Op], computes: Sequence[Op], overlapped: bool, replicated: bool) -> None:
        def of(kind: str) -> list[Op]:
            return sorted((op for op in mine if op.type == kind), key=lambda op: op.number)

        reduces = of("grads-reduce-scatter") if replicated else []
        middle = of("separate-grads-all-reduce") if overlapped else reduces
        chain = [*of(_LAYER_NORM), *of(_EMBEDDING), *middle, *of(_CLIP), *of(_LAST)]
        last = max(computes, key=lambda op: self._of(op, "end"))
        before = [*of("gc")]
        for op in before:
            self.waits[op].append(last)
        self.waits[chain[0]] += [*(before or [last]), *(reduces[-1:] if overlapped else [])]
        self._chain(chain)

    def _sorted(self, ops: Sequence[Op]) -> dict[int, list[Op]]:
        """Returns the operations of each stage, in an order in which the ranks can meet without a
        deadlock: operations that meet stand at one place of the order.
        """
        meets = {op: group for group in self.groups for op in group}
        clips = [op for op in ops if op.type == _CLIP]
        meets |= dict.fromkeys(clips, clips)
        order: dict[int, list[Op]] = {stage: [] for stage in range(self.stages)}
        done: set[Op] = set()
        left = sorted(ops, key=lambda op: self._of(op, "end"))
        while left:
            ready = next(
                (op for op in left if all(each in done for one in meets.get(op, [op]) for each in self.waits[one])),
                None,
            )
            assert ready is not None, "operations wait for one another in a circle"
            for op in meets.get(ready, [ready]):
                order[op.stage].append(op)
                done.add(op)
                left.remove(op)
        return order


def program_of(model: Model, stage: int) -> tuple[Program, dict[Op, int]]:
    """Returns `(program, indices)` for the ranks of a stage. `indices` are those of its operations
    in the program. How long they take is not set.
    """
    order = model.order[stage]
    number = {op: at for at, op in enumerate(order)}
    waited = {each for op in order for each in model.waits[op]}
    codes, streams, targets, counts = [Code.CALL], [-1], [-1], [0]
    mark: dict[Op, int] = {}
    for op in order:
        for each in dict.fromkeys(model.waits[op]):
            codes.append(Code.STREAM_WAIT)
            streams.append(number[op])
            targets.append(mark[each])
            counts.append(0)
        codes.append(Code.LAUNCH)
        streams.append(number[op])
        targets.append(-1)
        counts.append(1)
        if op in waited:
            mark[op] = len(codes)
            codes.append(Code.RECORD)
            streams.append(number[op])
            targets.append(-1)
            counts.append(0)
    codes.append(Code.CALL)
    streams.append(-1)
    targets.append(-1)
    counts.append(0)
    rows, ops = len(codes), len(order)

    def full(value: int, count: int, dtype: Any) -> np.ndarray:
        return np.full(count, value, dtype=dtype)

    instructions = Instructions(
        code=np.array(codes, np.int8),
        thread=full(0, rows, np.int32),
        stream=np.array(streams, np.int32),
        target=np.array(targets, np.int32),
        work=full(0, rows, np.int64),
        call=full(0, rows, np.int64),
        latency=full(0, rows, np.int64),
        ops=np.cumsum(counts).astype(np.int64),
        host=full(-1, rows, np.int32),
        recorded=np.zeros((rows, len(Recorded)), np.int32),
    )
    columns = {name: full(0, ops, np.int64) for name in ("duration", "latency", "gap", "lag", "uncached", "again")}
    columns |= {name: full(-1, ops, np.int32) for name in ("engine", "after", "device")}
    columns |= {name: full(0, ops, np.int32) for name in ("share", "blocks", "cached", "data")}
    return (
        Program(
            instructions=instructions,
            # An operation has a stream of its own: the model names all that it waits for.
            ops=Ops(stream=np.arange(ops, dtype=np.int32), size=full(1, ops, np.int32), **columns),
            threads=1,
            device_of_stream=full(0, ops, np.int32),
            engines=0,
            capacity=1022,
            step_starts=np.array([0]),
            step_ends=np.array([rows - 1]),
            thread_of=np.array([0], np.int32),
        ),
        number,
    )


class Job:
    """A published job: one program with all of its ranks, and how long each operation took in each
    step.
    """

    def __init__(self, table: Table) -> None:
        columns = table.columns
        self.steps = np.unique(columns["step"])
        self.replicas = int(columns["dp_rank"].max()) + 1
        one = table.where((columns["dp_rank"] == 0) & (columns["step"] == self.steps[0]))
        self.model = Model(one)
        stages = self.model.stages
        made = [program_of(self.model, stage) for stage in range(stages)]
        self.ranks = [(replica, stage) for replica in range(self.replicas) for stage in range(stages)]
        self.numbers = [made[stage][1] for _, stage in self.ranks]
        members = list(self._members())
        flat = [each for group in members for each in group]
        first = np.cumsum([0, *map(len, members)])
        rank, op = (np.array([pair[at] for pair in flat], dtype=np.int64) for at in (0, 1))
        self.programs = [made[stage][0] for _, stage in self.ranks]
        self.meeting = Meeting(
            first, rank, op, np.ones(len(flat), np.int8), np.zeros(len(flat), np.int64), np.arange(len(flat))
        )
        self.members = members
        self._fill(table)

    def _members(self) -> Iterator[list[tuple[int, int]]]:
        stages = self.model.stages

        def at(replica: int, op: Op) -> tuple[int, int]:
            rank = replica * stages + op.stage
            return rank, self.numbers[rank][op]

        for group in self.model.groups:
            for replica in range(self.replicas):
                yield [at(replica, op) for op in group]
        every = [op for stage in range(stages) for op in self.model.order[stage]]
        for op in every:
            if op.type in _REPLICATED and self.replicas > 1:
                yield [at(replica, op) for replica in range(self.replicas)]
        clips = [op for op in every if op.type == _CLIP]
        yield [at(replica, op) for replica in range(self.replicas) for op in clips]

    def _fill(self, table: Table) -> None:
        """Fills `lengths`: how long each operation of each rank took in each step, in ns. A
        transfer counts from the moment when the last of its members began.
        """
        columns = table.columns
        offset = np.cumsum([0, *map(len, self.numbers)])
        where = {rank: at for at, rank in enumerate(self.ranks)}
        replica, step = columns["dp_rank"].tolist(), np.searchsorted(self.steps, columns["step"])
        flat = np.empty(len(table.key), dtype=np.int64)
        for row, op in enumerate(table.key):
            rank = where[replica[row], op.stage]
            flat[row] = offset[rank] + self.numbers[rank][op]
        shape = (len(self.steps), int(offset[-1]))
        start, end = np.zeros(shape), np.zeros(shape)
        start[step, flat], end[step, flat] = columns["start"], columns["end"]
        lengths = end - start
        for group in self.members:
            at = [int(offset[rank]) + op for rank, op in group]
            lengths[:, at] = end[:, at] - start[:, at].max(axis=1)[:, None]
        self.lengths = np.maximum(np.rint(lengths * 1e9), 0).astype(np.int64)
        self.types = [op.type for numbers in self.numbers for op in numbers]
        self.stage = np.array([op.stage for numbers in self.numbers for op in numbers])
        self.replica = np.repeat([replica for replica, _ in self.ranks], [len(each) for each in self.numbers])
        self.offset = offset

    def ideal(self) -> np.ndarray:
        """Returns how long each operation of each rank takes in the ideal job, in ns."""
        result = np.empty(len(self.types))
        for kind in set(self.types):
            mine = np.array([each == kind for each in self.types])
            values = self.lengths[:, mine]
            result[mine] = np.median(values) if kind in _TRANSFERS else values.mean()
        return result

    def step_ns(self, lengths: np.ndarray) -> float:
        """Replays one step, and returns when the last optimizer ends, in ns. `lengths` are the
        times of all operations, in ns.
        """
        duration = np.rint(lengths).astype(np.int64)
        transfer = duration[self.offset[self.meeting.rank] + self.meeting.op]
        programs = [
            replace(program, ops=replace(program.ops, duration=own))
            for program, own in zip(self.programs, np.split(duration, self.offset[1:-1]), strict=True)
        ]
        times, left_out = replay_job(programs, replace(self.meeting, transfer=transfer), [0] * len(programs))
        assert not left_out
        return float(max(each.op_end.max() for each in times))

    def mean_step_ns(self, kept: np.ndarray) -> float:
        """Returns the mean time of a step, in ns, if the operations in the mask `kept` take as long
        as they took, and all others as long as in the ideal job.
        """
        ideal = self.ideal()
        return float(np.mean([self.step_ns(np.where(kept, step, ideal)) for step in self.lengths]))


def measured(path: Path) -> dict[str, Any]:
    """Returns S, the slowdown of a job, and the slowdown that each stage and each replica alone
    causes.
    """
    job = Job(read(path))
    every = np.ones(len(job.types), dtype=np.bool_)
    best = job.step_ns(job.ideal())
    return {
        "job": path.stem,
        "slowdown": job.mean_step_ns(every) / best,
        "step_s": job.mean_step_ns(every) / 1e9,
        "ideal_s": best / 1e9,
        "by_stage": {stage: job.mean_step_ns(job.stage == stage) / best for stage in range(job.model.stages)},
        "by_replica": {each: job.mean_step_ns(job.replica == each) / best for each in range(job.replicas)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", type=Path)
    parser.add_argument("--expect", nargs="*", type=Path, default=[])
    args = parser.parse_args()
    expected = {path.stem: json.loads(path.read_text()) for path in args.expect}
    for path in args.jobs:
        found = measured(path)
        stage = max(found["by_stage"], key=lambda each: found["by_stage"][each])
        replica = max(found["by_replica"], key=lambda each: found["by_replica"][each])
        print(f"{path.stem}: S {found['slowdown']:.4f}, stage {stage}, replica {replica}; ", end="")
        print(f"a step {found['step_s']:.3f} s, ideal {found['ideal_s']:.3f} s")
        for name in ("by_stage", "by_replica"):
            print(f"  {name}: " + ", ".join(f"{key} {value:.4f}" for key, value in found[name].items()))
        if path.stem in expected:
            theirs = expected[path.stem]
            slowdown = theirs["blocking_slowdown"]
            tops = [next(iter(theirs[f"blocking_decompose_by_{each}"]), None) for each in ("stage", "dp_rank")]
            off = found["slowdown"] / slowdown - 1
            print(f"  published: S {slowdown:.4f} ({100 * off:+.2f} %), stage {tops[0]}, replica {tops[1]}")


if __name__ == "__main__":
    main()
