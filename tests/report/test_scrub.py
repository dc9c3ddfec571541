"""--scrub-paths: nothing of a home or a machine is left, and files can still be told apart."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace
from report.rendered import as_json, as_markdown
from report.sample import LIBRARY, MODEL, TRAIN, TYPICAL, results
from traces import TraceBuilder

from unstall.report.scrub import scrub, scrub_timeline, scrubber
from unstall.result import LineCost, LineCount, Result, StepCount, Where
from unstall.timeline.columns import Meta


def _with_files(*files: str) -> Result:
    lines = tuple(
        LineCost(where=Where(file=file), launches=0, device_ops=0, device_ns=0, wait_ns=0, idle_ns=0) for file in files
    )
    return msgspec.structs.replace(TYPICAL, findings=(), lines=lines)


def _files(result: Result) -> list[str | None]:
    return [line.where.file for line in result.lines]


def test_a_typical_run_names_no_home() -> None:
    for render in (as_json, as_markdown):
        text = render(scrub(TYPICAL))
        assert "ada" not in text
        assert "train.py" in text
        assert "models/backbone.py" in text
        assert "transformers/models/gpt2/modeling_gpt2.py" in text


@pytest.mark.parametrize(
    ("paths", "short"),
    [
        (["/home/a/p/train.py"], ["train.py"]),
        (["/home/a/p/train.py", "/home/a/p/m/net.py"], ["train.py", "m/net.py"]),
        (["/home/a/p/x.py", "/data/q/x.py"], ["p/x.py", "data/q/x.py"]),
        (["/home/a", "/root/x.py"], ["", "x.py"]),
        (["/usr/lib/python3.11/queue.py", "/o/site-packages/torch/_ops.py"], ["queue.py", "torch/_ops.py"]),
        (["C:\\Users\\ada\\p\\train.py", "C:\\Users\\ada\\p\\m\\net.py"], ["train.py", "m/net.py"]),
        (["train.py", "torch/nn/modules/module.py"], ["train.py", "torch/nn/modules/module.py"]),
        (["<string>", ""], ["<string>", ""]),
    ],
)
def test_paths_are_shortened(paths: list[str], short: list[str]) -> None:
    assert _files(scrub(_with_files(*paths))) == short


def test_paths_in_texts_are_shortened_too() -> None:
    finding = msgspec.structs.replace(TYPICAL.findings[1], edit=f"remove-syncs:{TRAIN}:41", saw=f"read in {MODEL}")
    scrubbed = scrub(msgspec.structs.replace(TYPICAL, findings=(finding,)))
    assert scrubbed.findings[0].edit == "remove-syncs:train.py:41"
    assert scrubbed.findings[0].saw == "read in models/backbone.py"


@pytest.mark.parametrize("counted", ["waits", "launches", "copies"])
def test_paths_of_counts_are_shortened(counted: str) -> None:
    line = LineCount(where=Where(file="/home/ada/p/only_here.py", line=3), most=1, count=1, steps_seen=1)
    result = msgspec.structs.replace(TYPICAL, **{counted: StepCount(most=1, step=1, count=1, lines=(line,))})
    assert "/home/ada" not in as_json(scrub(result))


def test_files_that_only_the_timeline_names_are_shortened_with_the_same_function() -> None:
    other = "/home/ada/projects/vision/data/loader.py"
    shorten = scrubber(TYPICAL, [other])
    assert shorten(other) == "data/loader.py"
    assert shorten(f"{LIBRARY}:305 def forward") == "transformers/models/gpt2/modeling_gpt2.py:305 def forward"


def test_a_glob_that_names_a_home_is_left_out_of_a_timeline() -> None:
    meta = Meta("run.json", "kineto", user=("/home/ada/src/*", "src/*"))
    assert scrub_timeline(replace(TraceBuilder().timeline(), meta=meta), TYPICAL).meta.user == ("src/*",)


@given(results())
def test_scrubbing_changes_no_figure(result: Result) -> None:
    scrubbed = scrub(result)
    assert scrubbed.accounts == result.accounts
    assert [f.exposed_ns for f in scrubbed.findings] == [f.exposed_ns for f in result.findings]


def test_scrubbing_twice_changes_nothing_more() -> None:
    assert scrub(scrub(TYPICAL)) == scrub(TYPICAL)
