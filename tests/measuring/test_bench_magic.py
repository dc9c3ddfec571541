"""`%unstall_bench` in a real IPython shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unstall.measuring.comparison import Comparison
from unstall.measuring.measurement import Measurement

interactive = pytest.importorskip("IPython.core.interactiveshell")
capture = pytest.importorskip("IPython.utils.capture")
config = pytest.importorskip("traitlets.config")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A shell in which unstall was loaded, and which leaves nothing in the user's home."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    quiet = config.Config({"HistoryManager": {"enabled": False}, "InteractiveShell": {"colors": "nocolor"}})
    made = interactive.InteractiveShell.instance(config=quiet)
    made.run_line_magic("load_ext", "unstall")
    yield made
    interactive.InteractiveShell.clear_instance()


def _run(shell: Any, cell: str) -> tuple[Any, str]:
    """The cell's value, and what was said of its failure."""
    with capture.capture_output() as captured:
        result = shell.run_cell(cell)
    return result.result, captured.stdout + captured.stderr


def test_a_line_is_measured_with_the_notebooks_names(shell: Any) -> None:
    shell.user_ns["numbers"] = list(range(100))
    found, _ = _run(shell, "%unstall_bench --max-seconds 0.05 sum(numbers)")
    assert isinstance(found, Measurement)
    assert found.label == "sum(numbers)"
    assert found.wall.median > 0


def test_rates_are_of_what_the_line_says(shell: Any) -> None:
    found, _ = _run(shell, "%unstall_bench --max-seconds 0.05 --rel-ci 5% --bytes 1MiB sum(range(100))")
    assert found.bandwidth.per_second == pytest.approx((1 << 20) / found.wall.median * 1e9)
    _, said = _run(shell, "%unstall_bench --bytes 1M sum(range(100))")
    assert "--bytes: '1M' is no number of bytes" in said


def test_statements_are_compared(shell: Any) -> None:
    shell.user_ns["numbers"] = list(range(1000))
    found, _ = _run(shell, "%unstall_bench --max-seconds 0.2 sum(numbers) --vs sum(numbers + numbers) // 2")
    assert isinstance(found, Comparison)
    assert [each.name for each in found.candidates] == ["sum(numbers)", "sum(numbers + numbers) // 2"]
    assert found.answer == "SLOW"
    assert found.agrees


def test_a_cell_is_measured_whole_and_leaves_no_names(shell: Any) -> None:
    found, _ = _run(shell, "%%unstall_bench --max-seconds 0.05\nhalf = 21\nhalf * 2")
    assert isinstance(found, Measurement)
    assert "half" not in shell.user_ns


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--max-seconds soon 1", "%unstall_bench: --max-seconds soon: this is no number"),
        ("--nothing 1", "%unstall_bench: --nothing: there is no such option, or it has no value"),
        ("", "%unstall_bench: a statement is missing"),
        ("1 +", "%unstall_bench: 1 +: invalid syntax"),
        ("--by wall 1", "%unstall_bench: --by is about a comparison"),
    ],
)
def test_what_makes_no_sense_is_one_line(shell: Any, line: str, message: str) -> None:
    _, said = _run(shell, f"%unstall_bench {line}")
    assert message in said
    assert "Traceback" not in said


def test_what_the_statement_raises_is_its_own(shell: Any) -> None:
    _, said = _run(shell, "%unstall_bench 1 / 0")
    assert "ZeroDivisionError" in said
