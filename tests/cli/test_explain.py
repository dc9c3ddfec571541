"""`unstall explain` on real runs: what it prints, writes and exits with."""

from __future__ import annotations

import base64
import gzip
import json as standard
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from cli.command import EXAMPLES, Cli

from unstall import explain, load, whatif
from unstall.errors import TraceError

_CALL = {"ph": "X", "pid": 1, "tid": 1}
_EVENTS_OF_ADA = [
    {**_CALL, "cat": "python_function", "name": "/home/ada/p/train.py(3): step", "ts": 0, "dur": 50},
    {**_CALL, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 4, "args": {"correlation": 7}},
    {**_CALL, "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 9}
    | {"args": {"correlation": 7, "device": 0, "stream": 7}},
]


def test_a_run_is_explained(unstall: Cli, trace: Path) -> None:
    outcome = unstall("explain", trace)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"{trace}"[:60])
    assert "NVIDIA H200" in outcome.out


def test_the_json_is_the_contracts(unstall: Cli, trace: Path) -> None:
    result = standard.loads(unstall("explain", trace, "--json").out)
    assert result["schema"] == "unstall.explain/1"
    accounts = result["accounts"]
    assert sum(accounts["busy_ns"].values()) + sum(accounts["idle_ns"].values()) == accounts["wall_ns"]


def test_one_command_gives_every_format(unstall: Cli, trace: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"report{ending}" for ending in (".html", ".json", ".md", ".txt")]
    outcome = unstall("explain", trace, "--format", "github", *(a for path in outputs for a in ("-o", path)))
    assert (outcome.code, outcome.out[:24]) == (0, "::notice title=unstall::")
    assert all(path.stat().st_size > 200 for path in outputs)


def test_a_saved_timeline_gives_the_same_figures(unstall: Cli, trace: Path, tmp_path: Path) -> None:
    timeline = tmp_path / "run.unstall"
    first = standard.loads(unstall("explain", trace, "--json", "--save-timeline", timeline).out)
    second = standard.loads(unstall("explain", timeline, "--json").out)
    assert first == second


def test_a_saved_result_is_shown_as_the_trace_was(unstall: Cli, trace: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    first = unstall("explain", trace, "-o", result)
    assert unstall("report", result).out == first.out


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        (["--max-idle", "100%"], 0),
        (["--max-idle", "0%"], 1),
        (["--max-exposed", "1000s"], 0),
        (["--max-exposed", "0ns"], 1),
    ],
)
def test_a_budget_decides_the_exit_code(unstall: Cli, budget: list[str], code: int) -> None:
    outcome = unstall("explain", EXAMPLES / "gpt2_decode_item.json.gz", "-q", *budget)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith("unstall: over budget: ") is (code == 1)


def test_a_budget_cannot_be_met_by_recording_no_device(unstall: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    path.write_text(standard.dumps({"traceEvents": [event]}))
    outcome = unstall("explain", path, "--max-idle", "100%", "-q")
    assert outcome.code == 3
    assert outcome.err == "unstall: device idle cannot be checked: the run has no work on a device\n"


@pytest.mark.parametrize(
    ("option", "value"), [("--max-idle", "200%"), ("--max-idle", "0.2"), ("--max-exposed", "5"), ("--top", "0")]
)
def test_a_figure_that_makes_no_sense_is_usage_and_its_option_is_named(
    unstall: Cli, trace: Path, option: str, value: str
) -> None:
    outcome = unstall("explain", trace, option, value)
    assert outcome.code == 2
    assert outcome.err.startswith(f"unstall: {option}: '{value}' ")


@pytest.mark.parametrize(
    "outputs",
    [
        ["-o", "run.json"],
        ["-o", "folder/../run.json"],
        ["-o", "linked.json"],
        ["--save-timeline", "run.json"],
        ["-o", "new.html", "-o", "./new.html"],
        ["-o", "new.html", "--save-timeline", "new.html"],
    ],
)
def test_no_output_may_overwrite_the_input_or_another_output(
    unstall: Cli, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outputs: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run.json"
    run.write_bytes(trace.read_bytes())
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked.json").symlink_to(run)
    before = sorted(tmp_path.iterdir())
    outcome = unstall("explain", "run.json", *outputs)

    assert outcome.code == 2
    assert "Choose another place for the output" in outcome.err
    assert run.read_bytes() == trace.read_bytes()
    assert sorted(tmp_path.iterdir()) == before


def test_a_timeline_is_saved_over_another_and_over_nothing_else(unstall: Cli, trace: Path, tmp_path: Path) -> None:
    script, kept = tmp_path / "model.py", tmp_path / "kept"
    script.write_text("weeks of work")
    refused = unstall("explain", trace, "-q", "--save-timeline", script)
    assert refused.code == 2
    assert refused.err.startswith(f"unstall: {script}: cannot be written: it is there, and by its name no timeline ")
    assert script.read_text() == "weeks of work"
    for _ in range(2):
        assert unstall("explain", trace, "-q", "--save-timeline", kept).code == 0


def test_a_place_that_keeps_nothing_may_be_written_to_twice(unstall: Cli, trace: Path) -> None:
    twice = ["-o", "/dev/null", "-o", "/dev/null"]
    assert unstall("explain", trace, "-q", "--format", "text", *twice).code == 0


def test_a_trace_may_come_from_a_pipe(trace: Path) -> None:
    command = f'zcat "{trace}" | "{sys.executable}" -m unstall explain - --json'
    piped = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe:
        os.write(write, b"nothing of use")
        os.close(write)
        refused = subprocess.run(
            [sys.executable, "-m", "unstall", "explain", f"/dev/fd/{pipe.fileno()}"],
            capture_output=True,
            pass_fds=[pipe.fileno()],
        )
    assert standard.loads(piped.stdout)["source"]["path"] == "stdin"
    assert standard.loads(piped.stdout)["source"]["device_ops"] == 4000
    assert refused.returncode == 3
    assert refused.stderr.startswith(b"unstall: /dev/fd/")


def test_a_result_in_place_of_a_trace_is_told_apart(unstall: Cli, saved: Path) -> None:
    outcome = unstall("explain", saved)
    assert outcome.code == 3
    assert outcome.err == f"unstall: {saved}: this is a saved result; `unstall report {saved}` shows it again\n"


def test_a_scrubbed_timeline_names_no_home_and_gives_the_scrubbed_findings(unstall: Cli, tmp_path: Path) -> None:
    path, kept = tmp_path / "run.json", tmp_path / "run.unstall"
    path.write_text(standard.dumps({"traceEvents": _EVENTS_OF_ADA}))
    shown = standard.loads(unstall("explain", path, "--json", "--scrub-paths", "--save-timeline", kept).out)
    timeline = load(kept)

    assert not [text for text in timeline.strings if "/home/ada" in text]
    assert str(tmp_path) not in timeline.meta.path
    assert standard.loads(unstall("explain", kept, "--json").out) == shown


def test_a_step_that_is_nowhere_is_usage(unstall: Cli, trace: Path) -> None:
    outcome = unstall("explain", trace, "--step", "no such step")
    assert outcome.code == 2
    assert "no such step" in outcome.err


@pytest.mark.parametrize("content", [b"", b"not a trace", b"\x1f\x8b\x08broken", b"SQLite format 3\x00rest"])
def test_what_is_no_trace_exits_3_with_a_sentence(unstall: Cli, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    outcome = unstall("explain", path)
    assert outcome.code == 3
    assert outcome.err.startswith(f"unstall: {path}")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    "content", ["[]", '{"traceEvents": []}', '[{"ph": "X"}]', '{"traceEvents": [{"ph": "M", "name": "process_name"}]}']
)
@pytest.mark.parametrize("verb", ["explain", "whatif"])
def test_a_trace_with_no_events_exits_3_with_a_sentence(unstall: Cli, tmp_path: Path, verb: str, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    outcome = unstall(verb, path)
    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err.startswith(f"unstall: {path}: ")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["explain", "whatif", "diff"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_that_is_cut_off_before_its_device_events_says_so_and_exits_3(
    unstall: Cli, trace: Path, tmp_path: Path, verb: str, packed: bool
) -> None:
    whole = gzip.decompress(trace.read_bytes())
    path = tmp_path / "cut.json"
    first = whole.index(b'"cat": "kernel"')
    path.write_bytes(gzip.compress(whole[: first - 1000]) if packed else whole[: first - 1000])
    outcome = unstall(verb, *([trace, path] if verb == "diff" else [path]))
    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err.startswith(f"unstall: {path}: it ends before its device events: cut off at byte ")
    assert outcome.err.endswith("record the run again\n")


def test_python_is_told_so_too(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("[]")
    for ask in (lambda: explain(path), lambda: whatif(path, "graph")):
        with pytest.raises(TraceError, match="no events in it to explain"):
            ask()


@pytest.mark.parametrize("ph", ["X", "B"])
def test_a_trace_of_another_tool_is_refused_as_one(unstall: Cli, tmp_path: Path, ph: str) -> None:
    path = tmp_path / "jax.json"
    event = {"ph": ph, "name": "fusion.3", "pid": 1, "tid": 14, "ts": 10, "dur": 30, "args": {"hlo_op": "fusion.3"}}
    path.write_text(standard.dumps({"traceEvents": [event]}))
    outcome = unstall("explain", path)
    assert outcome.code == 3
    assert outcome.err.endswith("a trace of another tool cannot be read\n")


def test_a_run_with_no_device_work_is_explained_where_its_file_is_whole(unstall: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    path.write_text(standard.dumps({"traceEvents": [event]}))
    outcome = unstall("explain", path)
    assert outcome.code == 0
    assert "No device work was recorded" in outcome.out


def test_a_missing_trace_and_a_folder_exit_3(unstall: Cli, tmp_path: Path) -> None:
    assert unstall("explain", tmp_path / "gone.json").code == 3
    assert unstall("explain", tmp_path).code == 3


def _inflated(page: str) -> bytes:
    """All that the page's data blocks hold."""
    blocks = re.findall(r">([A-Za-z0-9+/=]{40,})<", page)
    return b"".join(zlib.decompress(base64.b64decode(block)) for block in blocks)


def test_scrubbing_reaches_the_html_timeline(unstall: Cli, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(standard.dumps({"traceEvents": _EVENTS_OF_ADA}))
    pages = []
    for options in ([], ["--scrub-paths"]):
        assert unstall("explain", path, "-q", "-o", tmp_path / "report.html", *options).code == 0
        pages.append(_inflated((tmp_path / "report.html").read_text()))
    as_recorded, scrubbed = pages
    assert as_recorded.count(b"/home/ada") > 1
    assert b"/home/ada" not in scrubbed
    assert b"train.py:3" in scrubbed


TABLE = """
> -----------  ------------  ------------  ------------  ------------  ------------  ------------
>        Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls
> -----------  ------------  ------------  ------------  ------------  ------------  ------------
>    aten::mm        75.00%       3.000ms       100.00%       4.000ms       4.000us          1000
> cudaLaunchKernel   25.00%       1.000ms        25.00%       1.000ms       1.000us          1000
> -----------  ------------  ------------  ------------  ------------  ------------  ------------
> Self CPU time total: 4.000ms
"""


@pytest.fixture
def pasted(tmp_path: Path) -> Path:
    (tmp_path / "pasted").write_text(TABLE)
    return tmp_path / "pasted"


def test_a_profilers_table_is_explained_whatever_its_name(unstall: Cli, pasted: Path, tmp_path: Path) -> None:
    targets = [tmp_path / f"said.{form}" for form in ("json", "md", "html", "txt")]
    outcome = unstall("explain", pasted, *(f"-o{target}" for target in targets))
    assert outcome.code == 0
    assert "a table of torch's profiler · 2 rows" in outcome.out
    assert "Would C++ help? Perhaps: it could save 75.0 %" in outcome.out
    assert standard.loads(targets[0].read_text())["schema"] == "unstall.table/1"
    assert all("a table of torch" in target.read_text() for target in targets[1:])


def test_a_profilers_table_has_no_timeline(unstall: Cli, pasted: Path, tmp_path: Path) -> None:
    for option in (["--max-idle", "5%"], ["--step", "x"], ["--save-timeline", str(tmp_path / "x.unstall")]):
        outcome = unstall("explain", pasted, *option)
        assert outcome.code == 2
        assert "this is a profiler's table, and" in outcome.err


def test_the_head_of_a_table_alone_exits_3(unstall: Cli, pasted: Path) -> None:
    pasted.write_text("\n".join(TABLE.splitlines()[:4]))
    outcome = unstall("explain", pasted)
    assert outcome.code == 3
    assert "none of its rows can be read" in outcome.err


def test_a_profilers_table_may_come_from_a_pipe(pasted: Path) -> None:
    command = [sys.executable, "-m", "unstall", "explain", "-"]
    ran = subprocess.run(command, input=pasted.read_text(), capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("stdin\n")
