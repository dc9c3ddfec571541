"""`unstall demo`: two programs on the virtual GPU, or the runs of them that are in the package."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from cli.command import Cli
from processes import succeeded

import unstall as api
from unstall.cli._last import is_page
from unstall.cli.demo import PROGRAMS, RUN, SHIPPED
from unstall.figures import parse_duration

_MADE = ["mended.py", "mended.trace.json.gz", "report.html", "train.py", "train.trace.json.gz"]
_KEPT = re.compile(r"^promised ([\d.]+ ms), got ([\d.]+ ms)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_that_it_leaves_is_in_one_folder(unstall: Cli, here: Path) -> None:
    assert unstall("demo", "--recorded").code == 0
    assert [path.name for path in here.iterdir()] == ["unstall-demo"]
    assert sorted(path.name for path in (here / "unstall-demo").iterdir()) == _MADE
    assert is_page(here / "unstall-demo" / "report.html")


def test_without_torch_it_says_how_to_get_it_and_explains_what_was_recorded(
    unstall: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def without_torch(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "torch" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_torch)
    done = unstall("demo")
    said = " ".join(done.out.split())
    assert (done.code, done.err) == (0, "")
    assert "The virtual GPU needs PyTorch, which" in said
    assert "Nothing runs now: both programs ran earlier" in said
    assert "\npip install torch --index-url https://download.pytorch.org/whl/cpu\n" in done.out
    assert _KEPT.search(done.out)


def test_what_to_type_next_can_be_typed(unstall: Cli, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, commands = unstall("demo", "--recorded", "my demo").out.partition("\nnext\n")
    lines = [line.partition("  #")[0].rstrip() for line in commands.splitlines()]
    assert lines[:4] == [
        "cd 'my demo'",
        "unstall open report.html",
        "unstall show 1 train.trace.json.gz",
        "diff train.py mended.py",
    ]
    monkeypatch.chdir(here / "my demo")
    assert unstall("open", "--print", "report.html").out == f"{here}/my demo/report.html\n"
    shown = unstall("show", "1", "train.trace.json.gz").out
    assert "functional.cross_entropy(model(normalized(x)), y)" in shown
    assert max(map(len, commands.splitlines())) < 80


def test_a_second_time_it_replaces_what_it_made(unstall: Cli, here: Path) -> None:
    report = here / "unstall-demo" / "report.html"
    unstall("demo", "--recorded")
    page = report.read_bytes()
    report.write_bytes(page[:5000])
    assert unstall("demo", "--recorded").code == 0
    assert len(report.read_bytes()) == len(page)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("train.py", "unstall-demo/train.py is not as the demo writes it, and would be lost"),
        ("report.html", "unstall-demo/report.html is no report of unstall, and would be lost"),
    ],
)
def test_what_is_somebodys_own_is_not_replaced(unstall: Cli, here: Path, file: str, said: str) -> None:
    (here / "unstall-demo").mkdir()
    (here / "unstall-demo" / file).write_text("hours of work")
    done = unstall("demo", "--recorded")
    assert done.code == 2
    assert done.err.startswith(f"unstall: {said}: name another ")
    assert (here / "unstall-demo" / file).read_text() == "hours of work"


def test_the_report_goes_where_it_is_asked_for(unstall: Cli, here: Path) -> None:
    assert unstall("demo", "--recorded", "-o", "mine.md").code == 0
    assert (here / "mine.md").read_text().startswith("### unstall\n\n**Launch-bound: ")
    assert not (here / "unstall-demo" / "report.html").exists()


@pytest.mark.parametrize("output", ["mine.pdf", "nowhere/mine.html", "."])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is(unstall: Cli, here: Path, output: str) -> None:
    assert unstall("demo", "--recorded", "-o", output).code == 2
    assert list(here.iterdir()) == []


def test_a_compiler_that_fails_is_told_and_fails(here: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(here / "cache"), "CXX": shutil.which("false") or "false"}
    command = [sys.executable, "-m", "unstall", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("unstall: running train.py …\n")  # into a pipe, all else may come late
    assert "unstall: compiling the virtual GPU failed" in done.stderr
    assert "unstall demo --recorded" in done.stderr


@pytest.mark.slow
def test_the_programs_keep_what_the_plan_promises_and_what_is_shipped_of_them_is_true(
    here: Path, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-goldens"):
        for name in PROGRAMS:
            shutil.copy(SHIPPED / f"{name}.py", here)
            trace = SHIPPED / f"{name}.trace.json.gz"
            succeeded([sys.executable, "-m", "unstall", *RUN, "-q", "--trace", str(trace), f"{name}.py"], cwd=here)
    command = [sys.executable, "-m", "unstall", "demo"]
    runs = [succeeded([*command, *more], cwd=here).stdout for more in ([], ["--recorded"])]
    assert "training on NVIDIA H200\nafter 10 steps: loss " in runs[0]
    times = [[parse_duration(time) for time in match.groups()] for run in runs if (match := _KEPT.search(run))]
    (promised, got), recorded = times
    assert got <= 1.15 * promised
    assert recorded == pytest.approx([promised, got], rel=0.02)
    for name in PROGRAMS:
        assert api.explain(here / "unstall-demo" / f"{name}.trace.json.gz").result.lines[0].where.file == f"{name}.py"
