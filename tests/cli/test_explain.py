"""`unstall explain` on real runs: what it prints, writes and exits with."""

from __future__ import annotations

import base64
import json as standard
import re
import zlib
from pathlib import Path

import pytest
from cli.command import EXAMPLES, Cli


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


def test_every_example_gives_every_format(unstall: Cli, tmp_path: Path) -> None:
    for example in sorted(EXAMPLES.glob("*.json.gz")):
        outputs = [tmp_path / f"{example.name}{ending}" for ending in (".html", ".json", ".md", ".txt")]
        outcome = unstall("explain", example, "--format", "github", *(a for path in outputs for a in ("-o", path)))
        assert outcome.code == 0, example.name
        assert outcome.out.startswith("::notice title=unstall::")
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
    assert outcome.code == 1
    assert outcome.err == "unstall: the budgets cannot be checked: the run has no work on a device\n"


@pytest.mark.parametrize(("option", "value"), [("--max-idle", "200%"), ("--max-exposed", "5")])
def test_a_budget_that_makes_no_sense_is_usage(unstall: Cli, trace: Path, option: str, value: str) -> None:
    outcome = unstall("explain", trace, option, value)
    assert outcome.code == 2
    assert outcome.err.startswith(f"unstall: '{value}' is not a ")


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


def test_a_missing_trace_and_a_folder_exit_3(unstall: Cli, tmp_path: Path) -> None:
    assert unstall("explain", tmp_path / "gone.json").code == 3
    assert unstall("explain", tmp_path).code == 3


def _inflated(page: str) -> bytes:
    """All that the page's data blocks hold."""
    blocks = re.findall(r">([A-Za-z0-9+/=]{40,})<", page)
    return b"".join(zlib.decompress(base64.b64decode(block)) for block in blocks)


def test_scrubbing_reaches_the_html_timeline(unstall: Cli, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    call = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**call, "cat": "python_function", "name": "/home/ada/p/train.py(3): step", "ts": 0, "dur": 50},
        {**call, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 4, "args": {"correlation": 7}},
        {**call, "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 9}
        | {"args": {"correlation": 7, "device": 0, "stream": 7}},
    ]
    path.write_text(standard.dumps({"traceEvents": events}))
    pages = []
    for options in ([], ["--scrub-paths"]):
        assert unstall("explain", path, "-q", "-o", tmp_path / "report.html", *options).code == 0
        pages.append(_inflated((tmp_path / "report.html").read_text()))
    as_recorded, scrubbed = pages
    assert as_recorded.count(b"/home/ada") > 1
    assert b"/home/ada" not in scrubbed
    assert b"train.py:3" in scrubbed
