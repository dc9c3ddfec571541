"""On a GPU, the dump of a second run leaves the line of a planted fault alone, and has its kernel's instruction."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.core_dumps import PROGRAMS, blamed, kernel_line, line_of, lines_of, missing
from unstall.blaming.core_dump.read import read_core_dump

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
ASSERTION = PROGRAMS[0].with_name("assertion.py")
each_kernel = pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each != ASSERTION], ids=lambda program: program.stem
)


@each_kernel
def test_the_line_of_a_planted_fault_is_left_alone(program: Path, tmp_path: Path) -> None:
    if needed := missing(program):
        pytest.skip(f"needs {needed}")
    kept = tmp_path / "kept.core"
    result, _ = blamed(program, "--core-dump-to", str(kept))
    assert result["no_dump"] == ""
    (grid,) = (grid for grid in result["dump"]["grids"] if grid["exception"])
    assert set(lines_of(result)) == {line_of(program, "# the fault")}
    assert (result["code"], grid["kernel"], grid["exception"]["name"]) == (700, "scale", "Warp Illegal Address")
    assert [line["line"] for line in grid["exception"]["at"]["source"]] == (
        [kernel_line(program)] * bool(kernel_line(program))
    )
    assert read_core_dump(kept).failed is not None


def test_an_assertion_has_its_line_without_a_second_run() -> None:
    result, stderr = blamed(ASSERTION, "--core-dump")
    assert stderr.count("Error: CUDA error: device-side assert triggered") == 1
    assert set(lines_of(result)) == {line_of(ASSERTION, "# the fault")}
    assert (result["code"], result["dump"]) == (710, None)
