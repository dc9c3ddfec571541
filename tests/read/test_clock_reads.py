"""Reads of the clock that a trace tells of: their lines are there, whatever the file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unstall.read import load
from unstall.timeline.columns import Timeline

PLACES: list[Any] = [["train.py", 7, "step"], ["train.py", 9, "step"]]


def read(tmp_path: Path, told: object) -> Timeline:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 2, "dur": 1}
    trace = {"baseTimeNanoseconds": 500, "unstall": {"clock_reads": told}, "traceEvents": [event]}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    return load(tmp_path / "trace.json")


def test_reads_are_sorted_and_on_the_timelines_clock(tmp_path: Path) -> None:
    timeline = read(tmp_path, {"places": PLACES, "reads": [[4_500, 1], [2_500, 0], [3_500, 0]]})
    reads, lines = timeline.clock_reads, timeline.lines
    assert reads.time.tolist() == [0, 1_000, 2_000]
    assert lines.line[reads.line].tolist() == [7, 7, 9]
    assert {timeline.text(int(lines.file[row])) for row in reads.line} == {"train.py"}


def test_reads_of_a_devices_clock_are_told_apart(tmp_path: Path) -> None:
    reads = read(tmp_path, {"places": PLACES, "reads": [[4_500, 1]], "device_reads": [[3_500, 0]]}).clock_reads
    assert (reads.time.tolist(), reads.of_host.tolist()) == ([1_000, 2_000], [False, True])


def test_reads_at_no_place_and_beyond_all_times_are_left_out(tmp_path: Path) -> None:
    timeline = read(tmp_path, {"places": PLACES, "reads": [[2_500, 2], [2**60, 0], [2_500, 1]]})
    assert timeline.lines.line[timeline.clock_reads.line].tolist() == [9]


@pytest.mark.parametrize(
    "told",
    [
        *(None, 7, [], {"places": PLACES, "reads": [[1]]}, {"places": [["train.py", 0, "f"]], "reads": [[1, 0]]}),
        *({"places": PLACES, "reads": [[1, -1]]}, {"places": [[7, 7, 7]], "reads": [[1, 0]]}),
    ],
)
def test_what_are_no_reads_are_not_read(tmp_path: Path, told: object) -> None:
    assert len(read(tmp_path, told).clock_reads) == 0
