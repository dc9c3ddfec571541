"""How long the host takes without CUPTI, as a trace tells it: times that can be relied on, or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unstall.read import load
from unstall.timeline.columns import HostTimes

_ZERO = 5_000_000_000
TOLD = {"recorded_ns": [_ZERO + 3_000, 10, 0, 40], "alone_ns": [7, 5, 0, 20]}


def host_times(tmp_path: Path, told: object) -> HostTimes:
    event = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2, "dur": 1}
    head = {"unstall": {"recorder": "cupti", "host_only": told}, "baseTimeNanoseconds": _ZERO}
    (tmp_path / "trace.json").write_text(json.dumps({**head, "traceEvents": [event]}))
    return load(tmp_path / "trace.json").host_times


def test_times_are_of_the_timelines_clock(tmp_path: Path) -> None:
    found = host_times(tmp_path, TOLD)
    assert found.recorded.tolist() == [1_000, 1_010, 1_010, 1_050]
    assert found.alone.tolist() == [0, 5, 5, 25]


def test_a_clock_beyond_all_numbers_is_refused_and_the_rest_is_read(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2, "dur": 1}
    head = {"unstall": {"recorder": "cupti", "host_only": TOLD}, "baseTimeNanoseconds": 2**63 + 5}
    (tmp_path / "trace.json").write_text(json.dumps({**head, "traceEvents": [event]}))
    timeline = load(tmp_path / "trace.json")
    assert (len(timeline.host), len(timeline.host_times)) == (1, 0)


def test_a_saved_timeline_has_them(tmp_path: Path) -> None:
    host_times(tmp_path, TOLD)
    timeline = load(tmp_path / "trace.json")
    timeline.save(tmp_path / "saved")
    again = load(tmp_path / "saved").host_times
    assert (again.recorded == timeline.host_times.recorded).all()
    assert (again.alone == timeline.host_times.alone).all()


@pytest.mark.parametrize(
    "told",
    [
        *(None, [], {}, 7, {"recorded_ns": [1, 2]}),
        *(TOLD | {"alone_ns": [0, 1, 2]}, TOLD | {"alone_ns": [0, 5, -1, 20]}, TOLD | {"alone_ns": [0, 5, 0.5, 20]}),
        *(
            TOLD | {"recorded_ns": [2**62, 1, 1, 1]},
            TOLD | {"recorded_ns": [2**61] * 4},
            {**TOLD, "alone_ns": [2**61] * 4},
        ),
        *(TOLD | {"recorded_ns": ["1", 2, 3, 4]}, {"recorded_ns": [1], "alone_ns": [1]}),
        {"recorded_ns": [], "alone_ns": []},
        TOLD | {"alone_ns": [0, 5, 0, 196]},
    ],
)
def test_what_does_not_fit_together_is_none(tmp_path: Path, told: object) -> None:
    assert len(host_times(tmp_path, told)) == 0
