"""Experiments with lines that wait: a run of each finds those lines, and calls no other line a wait."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import succeeded

from unstall.course.running import options
from unstall.course.table import script, table

ROWS = table()
_MARK = "# waits"
_MEMORY = ("allocator-churn", "pinned-allocation")  # memory is taken from the driver, as in any program


def _result(name: str, gpu: str | None, folder: Path) -> dict[str, Any]:
    copy = folder / f"{name}.py"  # files below the package would count as code of unstall
    copy.write_text(script(name).read_text("utf-8"), "utf-8")
    out, trace = folder / "result.json", folder / "trace.json.gz"
    on = options(ROWS[name], gpu) if gpu is not None else []
    command = [sys.executable, "-m", "unstall", "run", *on, "--after", "0", "--quiet"]
    succeeded([*command, "-o", str(out), "--trace", str(trace), str(copy)])
    result: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return result


@pytest.mark.parametrize(
    "gpu", ["t4", pytest.param("h200", marks=pytest.mark.slow), pytest.param(None, marks=pytest.mark.gpu, id="real")]
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("metrics_are_read_later", marks=pytest.mark.ci),
        pytest.param("pageable_memory_is_staged", marks=pytest.mark.ci),
        "reading_a_value_waits",
    ],
)
def test_each_line_that_waits_is_found_and_no_other(name: str, gpu: str | None, tmp_path: Path) -> None:
    lines = script(name).read_text("utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, 1) if line.endswith(_MARK)}
    result = _result(name, gpu, tmp_path)
    waits = {each["where"]["line"] for each in result["waits"]["lines"] if each["rule"] not in _MEMORY}
    found = {each["where"]["line"] for each in result["findings"] if each["wait_ns"] and each["rule"] not in _MEMORY}
    assert len(marked) >= 3
    assert waits == marked
    assert found == marked
