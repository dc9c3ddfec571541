"""`unstall diff A B`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from changes.runs import launching, steps

from unstall.cli import main


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """Two traces: a step of 100 µs of work, and one of 110 µs."""
    paths = tmp_path / "before.json", tmp_path / "after.json"
    for path, device_us in zip(paths, (1000, 1100), strict=True):
        steps(launching(device_us)).write(path)
    return str(paths[0]), str(paths[1])


def test_json_is_of_its_own_schema(runs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *runs, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "unstall.diff/1"
    assert document["kernels"][0]["device_ns"]["b"] == 1_100_000


@pytest.mark.parametrize(("most", "code"), [("5%", 1), ("0.05", 1), ("20%", 0), ("0.2", 0)])
def test_slower_by_more_than_allowed_exits_with_1(
    runs: tuple[str, str], most: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *runs, "--quiet", "--fail-on-slower", most]) == code
    seen = capsys.readouterr()
    assert seen.out == ""
    assert ("over budget: a step takes" in seen.err) == bool(code)


def test_a_faster_run_is_within_any_budget(runs: tuple[str, str]) -> None:
    assert main(["diff", *reversed(runs), "--quiet", "--fail-on-slower", "0%"]) == 0


@pytest.mark.parametrize("most", ["5", "fast", "-1%"])
def test_a_share_that_may_mean_two_things_is_refused(
    runs: tuple[str, str], most: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *runs, f"--fail-on-slower={most}"]) == 2
    assert "5% or 0.05" in capsys.readouterr().err


def test_a_budget_that_cannot_be_checked_exits_with_3(runs: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "idle.json"
    steps(lambda trace, step: trace.work(5)).write(path)
    assert main(["diff", runs[0], str(path), "--quiet", "--fail-on-slower", "5%"]) == 3


def test_a_missing_step_names_the_file(runs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *runs, "--step", "epoch"]) == 2
    assert "before.json: no annotation is called 'epoch'" in capsys.readouterr().err


def test_files_are_written_in_the_format_of_their_ending(runs: tuple[str, str], tmp_path: Path) -> None:
    outputs = [tmp_path / name for name in ("out.json", "out.md", "out.txt")]
    arguments = [part for path in outputs for part in ("-o", str(path))]
    assert main(["diff", *runs, "--quiet", *arguments]) == 0
    # A long path stands below its A.
    assert [path.read_text().replace("\n", " ")[:3] for path in outputs] == ["{  ", "###", "A /"]


def test_an_ending_of_no_format_is_refused_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "no.json", "nor.json", "-o", "out.pdf"]) == 2
    assert "names no format" in capsys.readouterr().err


def test_scrubbed_it_names_no_folder(runs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *runs, "--json", "--scrub-paths"]) == 0
    out = capsys.readouterr().out
    assert str(tmp_path) not in out
    assert json.loads(out)["a"]["source"]["path"] == "before.json"


def test_hostile_names_reach_neither_terminal_nor_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = tmp_path / "a.json", tmp_path / "b.json"
    steps(launching(100, kernel="\x1b[2Jevil|`<img src=x>")).write(paths[0])
    steps(launching(100, kernel="fine")).write(paths[1])
    for name in ("text", "markdown", "json"):
        assert main(["diff", *map(str, paths), "--format", name]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        if name == "markdown":
            assert "``[2Jevil\\|`<img src=x>``" in out
