"""A core dump of a planted fault on a GPU leaves its line alone, and has its kernel, exception and line of source."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.core_dumps import PROGRAMS, blamed, kernel_line, line_of, lines_of, missing
from unstall.blaming.core_dump.read import read_core_dump

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)


@each_program
def test_the_line_of_a_planted_fault_is_left_alone(program: Path, tmp_path: Path) -> None:
    if needed := missing(program):
        pytest.skip(f"needs {needed}")
    kept = tmp_path / "kept.core"
    result, _ = blamed(program, "--core-dump-to", str(kept))
    (grid,) = (grid for grid in result["dump"]["grids"] if grid["exception"])
    asserted = program.stem == "assertion"
    assert set(lines_of(result)) == {line_of(program, "# the fault")}
    assert result["code"] == (710 if asserted else 700)
    assert grid["exception"]["name"] == ("Warp Assert" if asserted else "Warp Illegal Address")
    assert asserted or grid["kernel"] == "scale"
    assert [line["line"] for line in grid["exception"]["at"]["source"]] == (
        [kernel_line(program)] * bool(kernel_line(program))
    )
    assert read_core_dump(kept).failed is not None


def test_an_assertion_is_seen_as_usual_without_a_dump() -> None:
    (program,) = (program for program in PROGRAMS if program.stem == "assertion")
    result, stderr = blamed(program)
    assert "device-side assert triggered" in stderr
    assert (result["code"], result["dump"]) == (710, None)
