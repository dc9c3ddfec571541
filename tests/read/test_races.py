"""Races that a trace tells of: their rows point at what is there, whatever the file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unstall.read import load
from unstall.timeline.columns import Races

RACE = {
    "kind": "read_early",
    "earlier": 7,
    "later": 8,
    "earlier_stream": [0, 7],
    "later_stream": None,
    "bytes": 64,
    "count": 2,
}


def races(tmp_path: Path, told: object) -> Races:
    def event(category: str, name: str, start: float, **args: int) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": 1, "args": args}

    events = [
        event("cuda_runtime", "cudaMemcpyAsync", 1, correlation=7),
        event("cpu_op", "aten::sum", 2, **{"External id": 8}),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 3, correlation=7, device=0, stream=7),
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"unstall": {"races": told}, "traceEvents": events}))
    return load(tmp_path / "trace.json").races


def test_ids_become_rows(tmp_path: Path) -> None:
    found = races(tmp_path, [RACE])
    assert (found.earlier.tolist(), found.later.tolist()) == ([0], [1])
    assert (found.earlier_stream.tolist(), found.later_stream.tolist()) == ([0], [-1])
    assert (found.bytes.tolist(), found.count.tolist()) == ([64], [2])


def test_an_id_that_nothing_has_is_not_known(tmp_path: Path) -> None:
    assert races(tmp_path, [RACE | {"earlier": 2**40, "later": -1}]).earlier.tolist() == [-1]


def test_a_race_on_a_stream_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    assert races(tmp_path, [RACE | {"later_stream": [3, 9]}, RACE]).later_stream.tolist() == [-1]


@pytest.mark.parametrize(
    "told",
    [
        *({"kind": "won"}, {"kind": 0}, {"earlier": -2}, {"earlier": 2**70}, {"earlier": "7"}, {"count": -1}),
        *({"earlier_stream": [0]}, {"later_stream": 7}, {"bytes": 1.5}, {"bytes": None}),
    ],
)
def test_what_is_no_race_is_not_read(tmp_path: Path, told: dict[str, object]) -> None:
    assert len(races(tmp_path, [RACE | told])) == 0


@pytest.mark.parametrize("told", [None, 7, {}, [[]], "races"])
def test_what_are_no_races_are_not_read(tmp_path: Path, told: object) -> None:
    assert len(races(tmp_path, told)) == 0
