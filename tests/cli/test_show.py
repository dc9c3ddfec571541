"""`unstall show` and `unstall open`: which run they take, and what they read and write."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest
from cli.command import EXAMPLES, Cli
from report.rendered import as_json
from report.sample import TYPICAL
from traces import TraceBuilder

from unstall.answers.report import read_result
from unstall.cli._last import last_page, last_run
from unstall.document.formats import render
from unstall.errors import UsageError
from unstall.line_digests import digest_of
from unstall.report.explain import document
from unstall.result import Result, Where
from unstall.virtual.profiler.trace_file import write_trace

_PROGRAM = "import torch\nfor x in xs:\n    print(x)\n    y = torch.ones(3).cuda()\nprint(y)\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with train.py and the saved result of a run of it, whose finding 1 is at line 4."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(_PROGRAM)
    where = Where(file="train.py", line=4, line_is="exact", function="<module>")
    item = next(finding for finding in TYPICAL.findings if finding.rule == "sync-item")
    item = msgspec.structs.replace(item, rule="pageable-copy")
    result = msgspec.structs.replace(TYPICAL, findings=(msgspec.structs.replace(item, where=where),))
    _save(result, tmp_path / "result.json")
    return tmp_path


def _save(result: Result, path: Path) -> None:
    path.write_text(as_json(result), "utf-8")


def test_a_finding_is_shown_with_its_source_and_the_patch_that_applies(unstall: Cli, here: Path) -> None:
    said = unstall("show", "1").out
    assert "> 4      y = torch.ones(3).cuda()" in said
    assert '+    y = torch.ones(3, device="cuda")' in said
    assert "apply it: unstall show 1 --patch | git apply" in said
    assert unstall("show", "1", "--patch").out.startswith("--- a/train.py\n+++ b/train.py\n@@ ")


def test_as_json_it_is_the_finding_with_its_source(unstall: Cli, here: Path) -> None:
    data = msgspec.json.decode(unstall("show", "1", "--json").out)
    assert (data["schema"], data["finding"]["rule"]) == ("unstall.show/1", "pageable-copy")
    assert (data["source"][0]["first"], data["source"][0]["lines"][3]) == (1, "    y = torch.ones(3).cuda()")
    assert data["patch"].startswith("--- a/train.py")


def test_source_that_changed_since_the_run_is_told(unstall: Cli, here: Path) -> None:
    now = (here / "result.json").stat().st_mtime
    os.utime(here / "train.py", (now + 9, now + 9))
    assert "train.py: changed after the run" in unstall("show", "1").out


def test_a_line_that_the_run_knows_by_its_text_is_found_where_it_is_now(unstall: Cli, here: Path) -> None:
    """As after the patch for another finding: the next one is for the file as it is."""
    (here / "result.json").unlink()
    digests = {"train.py": {str(n): digest_of(text) for n, text in enumerate(_PROGRAM.encode().splitlines(), 1)}}
    trace = TraceBuilder(unstall={"schema": "unstall.recording/1", "lines": "exact", "digests": digests})
    for _ in range(4):
        with trace.step(), trace.frame("train.py", 4, "<module>"), trace.op("aten::to"):
            trace.copy("HtoD", 400, memory="Pageable")
    trace.timeline().save(here / "train.trace.json.gz")
    (here / "train.py").write_text(f"import os\n{_PROGRAM}")
    path = here / "train.trace.json.gz"
    assert "at train.py:5 (was 4) in <module>" in unstall("show", "1", path).out
    assert '+    y = torch.ones(3, device="cuda")' in unstall("show", "1", path, "--patch").out
    (here / "train.py").write_text(_PROGRAM.replace("ones(3).cuda()", "zeros(4).cuda()"))
    outcome = unstall("show", "1", path, "--patch")
    assert (outcome.code, outcome.out) == (1, "")
    assert "the line has changed since the run (is the patch applied already?)" in outcome.err


def test_source_elsewhere_is_read_only_if_its_folder_is_named(
    unstall: Cli, here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    said = unstall("show", "1", here / "result.json")
    assert "y = torch.ones" not in said.out
    assert "--source DIR opens another" in " ".join(said.out.split())
    assert "y = torch.ones(3).cuda()" in unstall("show", "1", here / "result.json", "--source", here).out


def test_without_a_patch_that_is_said_and_the_exit_code_tells(unstall: Cli, here: Path) -> None:
    (here / "train.py").write_text(_PROGRAM.replace("torch.ones(3).cuda()", "x.to(x.dtype)"))
    outcome = unstall("show", "1", "--patch")
    assert (outcome.code, outcome.out) == (1, "")
    assert "no patch: the line is not of the form x.to(device)" in outcome.err


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_bugs_have_the_number_in_the_report_that_they_are_shown_by(unstall: Cli, here: Path, form: str) -> None:
    result = read_result(here / "result.json")
    bugs = tuple(msgspec.structs.replace(finding, wrong=True) for finding in result.findings)
    _save(msgspec.structs.replace(result, findings=bugs), here / "result.json")
    report = render(document(read_result(here / "result.json")), form)
    (line,) = (line for line in report.splitlines() if line.startswith("b1. "))
    assert result.findings[0].title.split()[0] in line
    assert "bug b1: " in unstall("show", "b1").out


def test_a_number_that_is_no_finding_is_answered_with_those_there_are(unstall: Cli, here: Path) -> None:
    outcome = unstall("show", "7")
    assert outcome.code == 2
    path = read_result(here / "result.json").source.path
    assert outcome.err == f"unstall: '7' is no finding of {path}: it has 1; ask for a line as FILE:LINE\n"


def test_a_line_with_several_findings_names_those_that_are_not_shown(unstall: Cli, here: Path) -> None:
    result = read_result(here / "result.json")
    (finding,) = result.findings
    other = msgspec.structs.replace(finding, title="Another thing", exposed_ns=0, harmless=True)
    once = msgspec.structs.replace(finding, title="A third thing")
    _save(msgspec.structs.replace(result, findings=(finding, once, other)), here / "result.json")
    said = unstall("show", f"train.py:{finding.where.line}").out
    assert said.endswith("\nalso at this line: A third thing (finding 2); Another thing\n")
    assert "also at this line" not in unstall("show", "1").out


def test_a_finding_that_is_not_worth_changing_is_shown_by_its_line(unstall: Cli, here: Path) -> None:
    result = read_result(here / "result.json")
    harmless = tuple(msgspec.structs.replace(finding, harmless=True) for finding in result.findings)
    _save(msgspec.structs.replace(result, findings=harmless), here / "result.json")
    assert unstall("show", "1").code == 2
    said = unstall("show", "train.py:4").out
    assert "finding at train.py:4: " in said
    assert "apply it: unstall show train.py:4 --patch | git apply" in said
    assert unstall("show", "train.py:5").code == 2


def test_without_a_run_it_says_how_to_record_one(unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for verb in (["show", "1"], ["open"]):
        outcome = unstall(*verb)
        assert outcome.code == 2
        assert "unstall run SCRIPT" in outcome.err


def test_the_last_run_is_the_newest_trace_or_result_but_not_of_another_rank(tmp_path: Path) -> None:
    for age, name in enumerate(["a-rank1.trace.json.gz", "a.trace.json.gz", "b.trace.json.gz", "other.json"]):
        (tmp_path / name).write_text("{}")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert last_run(tmp_path).name == "a.trace.json.gz"
    _save(TYPICAL, tmp_path / "result.json")
    assert last_run(tmp_path).name == "result.json"
    with pytest.raises(UsageError):
        last_run(tmp_path.parent / "nowhere")


def test_a_copy_of_an_earlier_run_is_not_the_last_run(tmp_path: Path) -> None:
    """As one keeps it for --against: its file is the newest, but not what is in it."""
    timeline = TraceBuilder().timeline()
    for name, age_s in (("train", 60), ("train-2", 30)):
        path = tmp_path / f"{name}.trace.json.gz"
        with pytest.MonkeyPatch.context() as patched:
            made_s = time.time() - age_s
            patched.setattr(time, "time", lambda made_s=made_s: made_s)
            write_trace(timeline, path)
        os.utime(path, (made_s, made_s))
    shutil.copy(tmp_path / "train.trace.json.gz", tmp_path / "BEFORE.trace.json.gz")
    assert last_run(tmp_path).name == "train-2.trace.json.gz"
    shutil.copy(tmp_path / "train-2.trace.json.gz", tmp_path / "AFTER.trace.json.gz")
    assert last_run(tmp_path).name == "train-2.trace.json.gz"


def test_open_writes_the_page_of_the_last_run_once(
    unstall: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "course_slow_graph.json.gz", tmp_path / "train.trace.json.gz")
    page = tmp_path / "train.report.html"
    assert unstall("open", "--print").out == f"{page}\n"
    written = page.stat().st_mtime_ns
    assert last_page(tmp_path) == page
    assert unstall("open", "--print").out == f"{page}\n"
    assert page.stat().st_mtime_ns == written


def test_open_shows_a_browser_reports_alone(unstall: Cli, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) is None)  # type: ignore[func-returns-value]
    (here / "other.html").write_text("<html>")
    assert unstall("open", "other.html").code == 2
    assert unstall("open").code == 0
    assert opened == [(here / "result.report.html").as_uri()]


def test_no_patch_is_made_of_source_that_changed_since_the_run(unstall: Cli, here: Path) -> None:
    now = (here / "result.json").stat().st_mtime
    os.utime(here / "train.py", (now + 9, now + 9))
    outcome = unstall("show", "1", "--patch")
    assert (outcome.code, outcome.out) == (1, "")
    assert "train.py: changed after the run" in outcome.err


def test_a_copy_is_followed_to_the_device(unstall: Cli, here: Path) -> None:
    trace = EXAMPLES / "resnet50_pageable_item_nan.json.gz"
    said = unstall("show", "3", trace, "--chain").out
    assert "aten/src/ATen/native/TensorConversions.cpp" in said
    data = msgspec.json.decode(unstall("show", "3", trace, "--chain", "--json").out)
    assert (data["schema"], data["at"]) == ("unstall.chain/1", "pairs.py:42")
    names = [link["name"] for link in data["chains"][0]["links"]]
    assert names[-4:] == ["aten::copy_", "cudaStreamIsCapturing", "cudaMemcpyAsync", "Memcpy HtoD (Pageable -> Device)"]


def test_a_chain_and_a_patch_are_not_asked_for_at_once(unstall: Cli, here: Path) -> None:
    said = unstall("show", "1", "--chain", "--patch")
    assert said.code == 2
    assert "say one of them" in said.err


def test_a_file_in_place_of_the_number_is_told_from_a_run_that_is_missing(
    unstall: Cli, here: Path, tmp_path: Path
) -> None:
    outcome = unstall("show", "result.json")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "unstall: the number of a finding comes before the file: unstall show 1 result.json\n"
