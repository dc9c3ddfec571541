"""Data of uploads that a trace tells of: their rows point at what is there, whatever the file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unstall.read import load
from unstall.timeline.columns import Uploads
from unstall.timeline.limits import MOST_UPLOADS

FIRST: list[Any] = [7, 1, -1, -1, 9, 9, True]
SECOND: list[Any] = [8, 1, 0, 9, -1, -1, True]


def uploads(tmp_path: Path, told: object) -> Uploads:
    events = [
        {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": 1,
            "tid": 1,
            "ts": number,
            "dur": 1,
            "args": {"correlation": number},
        }
        for category, name, number in (
            ("cuda_runtime", "cudaMemcpyAsync", 7),
            ("cuda_runtime", "cudaMemcpyAsync", 8),
            ("cuda_runtime", "cudaLaunchKernel", 9),
        )
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"unstall": {"uploads": told}, "traceEvents": events}))
    return load(tmp_path / "trace.json").uploads


def test_ids_become_rows(tmp_path: Path) -> None:
    found = uploads(tmp_path, [FIRST, SECOND])
    assert (found.call.tolist(), found.content.tolist()) == ([0, 1], [1, 1])
    assert (found.previous.tolist(), found.used_before.tolist()) == ([-1, 0], [-1, 2])
    assert (found.first_use.tolist(), found.last_use.tolist()) == ([2, -1], [2, -1])
    assert found.alone.tolist() == [True, True]


@pytest.mark.parametrize("call", [-1, 10, 2**40])
def test_an_upload_whose_call_is_not_there_is_left_out(tmp_path: Path, call: int) -> None:
    found = uploads(tmp_path, [[call, *FIRST[1:]], SECOND])
    assert (found.call.tolist(), found.previous.tolist()) == ([1], [-1])


def test_an_upload_one_of_whose_uses_is_not_there_is_not_known(tmp_path: Path) -> None:
    assert uploads(tmp_path, [[7, 1, -1, -1, 77, 9, True]]).call.tolist() == []


def test_an_earlier_upload_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert uploads(tmp_path, [FIRST, [8, 1, 50, 9, -1, -1, True]]).previous.tolist() == [-1, -1]


@pytest.mark.parametrize(
    "told",
    [
        *(None, 7, {}, "uploads", [[]], [[7]], [[*FIRST, 1]], [["7", *FIRST[1:]]], [[7, -1, *FIRST[2:]]]),
        *([[7, 2**31, *FIRST[2:]]], [[7, 1, MOST_UPLOADS, *FIRST[3:]]], [[*FIRST[:6], 2]]),
    ],
)
def test_what_are_no_uploads_are_not_read(tmp_path: Path, told: object) -> None:
    assert len(uploads(tmp_path, told)) == 0
