"""Faults that a trace tells of: their rows point at what is there, whatever the file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unstall.read import load
from unstall.timeline.columns import FaultKind, Timeline
from unstall.timeline.fault_details import packed, unpacked

FAULT = {
    "kind": "class",
    "call": 8,
    "replay": -1,
    "noticed": 7,
    "device": 0,
    "stream": 7,
    "iteration": 12,
    "ended": True,
    "details": {"check": "Target 10 is out of bounds."},
}
WRONG = {"argument": "target", "value": 10, "position": [5], "least": 0, "bound": 10, "count": 1, "of": 16}


def told_of(tmp_path: Path, faults: object, held: object = ()) -> Timeline:
    def event(category: str, name: str, start: float, **args: int) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": 1, "args": args}

    events = [
        event("cuda_runtime", "cudaStreamSynchronize", 1, correlation=7),
        event("cpu_op", "aten::nll_loss", 2, **{"External id": 8}),
        event("kernel", "nll", 3, correlation=7, device=0, stream=7),
    ]
    told = {"faults": faults, "held": held}
    (tmp_path / "trace.json").write_text(json.dumps({"unstall": told, "traceEvents": events}))
    return load(tmp_path / "trace.json")


def test_ids_become_rows(tmp_path: Path) -> None:
    faults = told_of(tmp_path, [FAULT]).faults

    assert (faults.call.tolist(), faults.noticed.tolist(), faults.replay.tolist()) == ([1], [0], [-1])
    assert (faults.stream.tolist(), faults.kind.tolist()) == ([0], [FaultKind.CLASS])
    assert (faults.iteration.tolist(), faults.ended.tolist()) == ([12], [True])


def test_the_details_come_whole(tmp_path: Path) -> None:
    inputs = [{"name": "target", "dtype": "int64", "shape": [16]}]
    told = {"check": "Target 10 is out of bounds.", "inputs": inputs, "wrong": WRONG}
    timeline = told_of(tmp_path, [FAULT | {"details": told}])
    found = unpacked(timeline.text(int(timeline.faults.details[0])))

    assert found is not None
    assert json.loads(packed(found)) == told


def test_an_id_that_nothing_has_is_not_known(tmp_path: Path) -> None:
    faults = told_of(tmp_path, [FAULT | {"call": 2**40, "stream": 9}]).faults

    assert (faults.call.tolist(), faults.stream.tolist()) == ([-1], [-1])


def test_what_held_memory_is_read_with_them(tmp_path: Path) -> None:
    held = told_of(tmp_path, [FAULT | {"kind": "memory"}], [{"call": 8, "bytes": 4096, "count": 2}]).held

    assert (held.call.tolist(), held.bytes.tolist(), held.count.tolist()) == ([1], [4096], [2])


@pytest.mark.parametrize(
    "told",
    [
        *({"kind": "won"}, {"kind": 0}, {"call": -2}, {"call": 2**70}, {"call": "7"}, {"device": -1}),
        *({"device": 2**31}, {"ended": 1}, {"iteration": 1.5}, {"details": None}, {"details": {"check": 7}}),
        {"details": {"check": "", "wrong": WRONG | {"value": None}}},
    ],
)
def test_what_is_no_fault_is_not_read(tmp_path: Path, told: dict[str, object]) -> None:
    assert len(told_of(tmp_path, [FAULT | told]).faults) == 0


@pytest.mark.parametrize("told", [None, 7, {}, [[]], "faults"])
def test_what_are_no_faults_are_not_read(tmp_path: Path, told: object) -> None:
    assert len(told_of(tmp_path, told).faults) == 0


def test_details_that_are_no_details_are_none() -> None:
    assert unpacked("") is None
    assert unpacked('{"check": "a"' + " " * (1 << 16) + "}") is None
    assert unpacked('{"check": "a"}') is not None
