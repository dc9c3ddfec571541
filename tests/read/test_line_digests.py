"""Digests of source lines that a trace tells of."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from traces import TraceBuilder

from unstall.read import load
from unstall.timeline.columns import Timeline


def _run(digests: object) -> TraceBuilder:
    trace = TraceBuilder(unstall={"recorder": "cupti", "lines": "exact", "digests": digests})
    for line in (10, 11):
        with trace.frame("train.py", line, "step"), trace.op("aten::mm"):
            trace.launch("gemm", 5)
    return trace


def _by_line(timeline: Timeline) -> dict[int, int]:
    return dict(zip(timeline.lines.line.tolist(), timeline.lines.digest.tolist(), strict=True))


def test_each_line_has_its_own() -> None:
    assert _by_line(_run({"train.py": {"10": 7, "12": 9}, "other.py": {"11": 8}}).timeline()) == {10: 7, 11: -1}


@pytest.mark.parametrize(
    "told", [7, [1], {"train.py": 3}, {"train.py": {"ten": 7}}, {"train.py": {"10": -5}}, {"train.py": {"10": 2**60}}]
)
def test_what_is_no_digest_is_ignored(told: Any) -> None:
    assert set(_by_line(_run(told).timeline()).values()) == {-1}


def test_they_are_saved_and_a_file_of_an_older_version_has_none(tmp_path: Path) -> None:
    new, old = tmp_path / "new.timeline", tmp_path / "old.timeline"
    _run({"train.py": {"10": 7}}).timeline().save(new)
    assert _by_line(load(new)) == {10: 7, 11: -1}
    with ZipFile(new) as whole, ZipFile(old, "w") as less:
        for name in whole.namelist():
            if name != "lines.digest.npy":
                less.writestr(name, whole.read(name))
    assert _by_line(load(old)) == {10: -1, 11: -1}
