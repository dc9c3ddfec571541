"""What is made of a script's output: figures, checks, failures, and what differs from an author's figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unstall.course.against_author import against_author
from unstall.course.figures import Figure, figure, figure_in, figures_in, filled
from unstall.course.row import Author, Check, Row
from unstall.course.running import checked, run
from unstall.errors import UnstallError

ROW = Row(
    topic="Clocks",
    number=99,
    question="Does it work?",
    checks=(Check("Slow is slower.", "slow", "fast", at_least=2), Check("There are three.", "count", equal=3)),
    learn="It does.",
)


@pytest.mark.parametrize(
    ("line", "value", "unit"),
    [
        ("with synchronize: 531.2 us", 531.2e-6, "s"),
        ("with synchronize: 531.2 µs", 531.2e-6, "s"),
        ("  reserved: 33,554,432 bytes", 33_554_432, "bytes"),
        ("reserved: 32.0 MiB", 33_554_432, "bytes"),
        ("mul_sum, %timeit: 1e-3 s", 1e-3, "s"),
        ("warnings: 1", 1, ""),
        ("share: 99.8 %", 99.8, "%"),
        ("difference: -0.5 ms", -0.5e-3, "s"),
    ],
)
def test_a_line_with_a_figure_is_read(line: str, value: float, unit: str) -> None:
    found = figure_in(line)
    assert found is not None
    assert found.value == pytest.approx(value)
    assert found.unit == unit
    assert f"{found.label}: {found.text}" == line.strip()


@pytest.mark.parametrize("line", ["", "done", "done: yes", "12 ms", "took: 12 parsecs", "a: 1 of 2", "at 10:30"])
def test_other_lines_are_no_figures(line: str) -> None:
    assert figure_in(line) is None


def test_a_label_in_braces_stands_for_its_figure() -> None:
    figures = {each.label: each for each in figures_in("bench, host: 28.8 us\n")}
    assert filled("launching takes {bench, host}.", figures) == "launching takes 28.8 us."
    assert filled("launching takes {bench, host}.", {}) == "launching takes `bench, host`."


def test_what_to_learn_has_the_figures_of_this_run(tmp_path: Path) -> None:
    script = tmp_path / "experiment.py"
    script.write_text("print('slow: 4 s\\nfast: 2 s\\ncount: 3')")
    row = replace(ROW, learn="Slow takes {slow}, and slowest {slowest}.")
    assert run(script, row, None).learn == "Slow takes 4 s, and slowest `slowest`."


def test_a_figure_that_was_written_down_wrongly_is_refused() -> None:
    with pytest.raises(UnstallError, match="'fast' is no figure"):
        figure("launch", "fast")


@pytest.mark.parametrize(
    ("check", "holds", "reason"),
    [
        (Check("", "slow", "fast", at_least=2), True, '"slow" is 4 times "fast" (at least 2)'),
        (Check("", "slow", "fast", at_most=3.9), False, '"slow" is 4 times "fast" (at most 3.9)'),
        (Check("", "count", equal=3), True, '"count" is 3 (exactly 3)'),
        (Check("", "count", equal=4), False, '"count" is 3 (exactly 4)'),
        (Check("", "count", at_least=377_487_360), False, '"count" is 3 (at least 377,487,360)'),
        (Check("", "kept", at_least=377_487_360), True, '"kept" is 1,164.0 MiB (at least 360 MiB)'),
        (Check("", "share", at_most=20), True, '"share" is 0.9% (at most 20 %)'),
        (Check("", "lost", "fast", at_least=0), None, 'the script did not print "lost"'),
        (Check("", "slow", "zero", at_least=0), False, '"zero" is 0'),
    ],
)
def test_a_check_holds_within_its_limits(check: Check, holds: bool | None, reason: str) -> None:
    printed = "slow: 4 ms\nfast: 1000 us\ncount: 3\nzero: 0 s\nkept: 1,164.0 MiB\nshare: 0.9%\n"
    figures = {each.label: each for each in figures_in(printed)}
    found = checked(check, figures)
    assert (found.holds, found.reason) == (holds, reason)


def test_a_script_is_run_in_a_folder_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "experiment.py"
    script.write_text("from pathlib import Path\nPath('litter').touch()\nprint('slow: 4 s\\nfast: 2 s\\ncount: 3')\n")
    found = run(script, ROW, None)
    assert (found.name, found.failure, found.holds) == ("experiment", "", True)
    assert found.figures[0] == Figure("slow", "4 s", 4.0, "s")
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.py"]


def test_a_script_finds_modules_by_relative_paths_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "of_mine.py").write_text("slow = 4\n")
    script = tmp_path / "experiment.py"
    script.write_text("import of_mine\nprint(f'slow: {of_mine.slow} s')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "src")
    assert [each.text for each in run(script, ROW, None).figures] == ["4 s"]


def test_a_script_that_fails_says_why_and_keeps_what_it_printed(tmp_path: Path) -> None:
    script = tmp_path / "experiment.py"
    script.write_text("print('slow: 4 s')\nraise ValueError('no such thing')\n")
    found = run(script, ROW, None)
    assert found.failure == "the script ended with exit code 1: ValueError: no such thing"
    assert [each.label for each in found.figures] == ["slow"]
    assert not found.holds


def test_a_script_that_is_killed_is_said_to_be_by_the_name_of_its_signal(tmp_path: Path) -> None:
    script = tmp_path / "experiment.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert run(script, ROW, None).failure == "the script ended by SIGKILL"


def test_output_that_is_not_utf_8_is_read(tmp_path: Path) -> None:
    script = tmp_path / "experiment.py"
    script.write_text("import sys\nsys.stdout.buffer.write(b'\\xff\\nslow: 4 s\\nfast: 2 s\\ncount: 3\\n')\n")
    assert run(script, ROW, None).holds


def test_a_script_that_hangs_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "experiment.py"
    script.write_text("import time\nprint('slow: 4 s', flush=True)\ntime.sleep(1000)\n")
    found = run(script, ROW, None, limit_s=1)
    assert found.failure == "the script was stopped after 1 s: --timeout sets the limit"
    assert [each.label for each in found.figures] == ["slow"]
    assert [(each.holds, each.reason) for each in found.checks] == [(None, "the script was stopped after 1 s")] * 2


def test_figures_are_compared_with_an_author_of_the_same_gpu_only() -> None:
    author = Author("Tesla T4", {"slow": "2 s", "fast": "1 s"}, within={"slow": 1.5, "fast": 1})
    row = replace(ROW, author=author, missed={"slow": "known"})
    figures = {"slow": "4 s", "fast": "1 s", "count": "3"}
    slow, fast = against_author(row, "Tesla T4", figures)
    assert (slow.ratio, slow.missed, slow.why) == (2, True, "known")
    assert (fast.ratio, fast.missed) == (1, False)
    assert list(against_author(row, "NVIDIA H200", figures)) == []
