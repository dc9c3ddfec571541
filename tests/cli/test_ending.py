"""The commands at the end of a run."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.cli import parse
from unstall.cli._ending import again, ending, in_lines
from unstall.cli.run import prepare_parser
from unstall.diagnose.explain import explain
from unstall.document import terminal
from unstall.document.document import Document
from unstall.result import Result

WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), max_size=30), min_size=1, max_size=12
)


@given(WORDS)
def test_the_lines_of_a_command_are_the_command(words: list[str]) -> None:
    lines = in_lines(shlex.join(["unstall", *words]))
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert shlex.split(" ".join(line.removesuffix(" \\") for line in lines)) == ["unstall", *words]


@pytest.mark.parametrize(
    ("environment", "before"),
    [({}, ""), ({"LOCAL_WORLD_SIZE": "2"}, "torchrun … -m "), ({"TORCHELASTIC_RUN_ID": "none"}, "torchrun … -m ")],
)
def test_the_next_run_is_started_as_this_one_was(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], before: str
) -> None:
    for name in ("LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    args = parse(["run", "--full", "--stop", "train.py", "--lr", "1 e"])
    (line,) = in_lines(again(args, "--against", "a.json"))
    assert line == f"{before}unstall run --against a.json --stop train.py --lr '1 e'"


def test_a_file_to_compare_with_is_read_before_the_program_runs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('runs')\n")
    command = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "--against", str(program), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"unstall: --against {program}: ")


@pytest.mark.parametrize(
    ("found_by", "advice"),
    [
        ("period", "# before you mend: put unstall.step() at the end of each step, and run it again"),
        ("whole", "# no steps were found: if there are any, first put unstall.step() at their end"),
        ("annotation", None),
    ],
)
def test_before_the_mending_it_says_to_mark_steps_that_are_not_certain(
    found_by: Literal["period", "whole", "annotation"], advice: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    result = _waiting()
    _show(replace(result, steps=replace(result.steps, found_by=found_by)))
    lines = capsys.readouterr().out.splitlines()
    next_to = "# once something is mended:" if found_by != "whole" else "unstall show 1"
    before = lines[next(number for number, line in enumerate(lines) if line.startswith(next_to)) - 1]
    assert (before if before.startswith("#") else None) == advice
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("options", "told"), [(["--gpu", "t4"], True), (["--gpu", "t4", "--warm"], False), ([], False)]
)
def test_a_virtual_run_that_mostly_starts_up_is_offered_without_first_uses(
    options: list[str], told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    result = _waiting()
    _show(replace(result, verdict=replace(result.verdict, bound_by="startup")), *options)
    assert ("unstall run --warm --gpu t4 train.py" in capsys.readouterr().out.splitlines()) == told


_LOOP = "from torch.utils.data import DataLoader\nfor x in DataLoader(xs):\n    a = x.cuda()\n"


@pytest.mark.parametrize(("lines", "told"), [((3, 4), "findings 1 and 2"), ((4, 5), "finding 1"), ((5,), None)])
def test_it_says_which_findings_have_a_patch(
    lines: tuple[int, ...],
    told: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(_LOOP + "    b = x.to(device)\n    c = f(x)\n")
    trace = TraceBuilder(unstall={"schema": "unstall.recording/1", "lines": "exact"})
    for _ in range(4):
        with trace.step():
            for line in lines:
                with trace.frame("train.py", line, "<module>"), trace.op("aten::to"):
                    trace.copy("HtoD", 1000 / line, memory="Pageable")
    _show(explain(trace.timeline()).result)
    next_steps = capsys.readouterr().out.partition("\nnext\n")[2].splitlines()
    patch = [f"# there is a patch for {told}:", "unstall show 1 --patch | git apply"] if told else []
    assert next_steps[: len(patch) + 2] == ["unstall show 1", *patch, "unstall open"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "all of it: unstall explain 'my train.trace.json.gz'"),
        (["-o", "report.html"], "all of it: unstall explain 'my train.trace.json.gz', or report.html"),
    ],
)
def test_all_of_it_is_a_command(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = parse(["run", *words, "train.py"])
    full = Document(title="", about=(), blocks=(), data=explain(TraceBuilder().timeline()).result)
    terminal.show(ending(args, Path("my train.trace.json.gz"))(full))
    assert capsys.readouterr().out.splitlines()[-1] == said


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        ("train-rank0.trace.json.gz", ["unstall fleet 'train-rank*.trace.json.gz'"]),
        ("out/train-rank0-2.trace.json.gz", ["unstall fleet 'out/train-rank*-2.trace.json.gz'"]),
        ("train.trace.json.gz", []),
    ],
)
def test_the_next_step_after_a_run_of_several_ranks_is_to_explain_them_all(
    trace: str, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    full = Document(title="", about=(), blocks=(), data=explain(TraceBuilder().timeline()).result)
    terminal.show(ending(parse(["run", "train.py"]), Path(trace))(full))
    shown = capsys.readouterr().out
    next_steps = [line for line in shown.partition("\nnext\n")[2].partition("\n\n")[0].splitlines() if line[0] != "#"]
    assert next_steps[:1] == said
    assert shown.endswith(f"all of it: unstall explain {trace}\n")


def test_a_patch_that_gains_next_to_nothing_is_not_put_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(_LOOP)
    trace = TraceBuilder(unstall={"schema": "unstall.recording/1", "lines": "exact"})
    for _ in range(4):
        with trace.step():
            with trace.frame("train.py", 3, "<module>"), trace.op("aten::to"):
                trace.copy("HtoD", 20, memory="Pageable")
            with trace.frame("train.py", 4, "<module>"), trace.op("aten::item"):
                trace.launch("gemm", 9_000)
                trace.sync()
    result = explain(trace.timeline()).result
    (copy,) = (finding for finding in result.findings if finding.rule == "pageable-copy")
    assert result.replay is not None
    for gain_ns, told in ((result.replay.undistorted_mean_step_ns // 101, False), (10**6, True)):
        gains = replace(copy, gain_ns=gain_ns, gain_below_ns=None, harmless=False)
        findings = tuple(gains if each is copy else each for each in result.findings)
        _show(replace(result, findings=findings, plan=()))
        assert ("there is a patch" in capsys.readouterr().out) is told


def _waiting() -> Result:
    """A run of four steps, in each of which the program waits for a value."""
    trace = TraceBuilder()
    for _ in range(4):
        with trace.step(), trace.frame("train.py", 10, "train"), trace.op("aten::item"):
            trace.launch("gemm", 400)
            trace.sync()
    return explain(trace.timeline()).result


def _show(result: Result, *options: str) -> None:
    parser = argparse.ArgumentParser()
    prepare_parser(parser)
    args = parser.parse_args([*options, "train.py"])
    args.words = ["run", *options, "train.py"]
    full = Document(title="", about=(), blocks=(), data=result)
    terminal.show(ending(args, Path("train.trace.json.gz"))(full))
