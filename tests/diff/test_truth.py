"""Pairs of real runs: what is known to have changed between them is what `diff` says, and whole reports of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unstall.diagnose.explain import explain
from unstall.diff.result import DiffResult
from unstall.diff.runs import diff
from unstall.document.formats import render
from unstall.report.diff import document

ROOT = Path(__file__).parents[2]
TRACES = ROOT.parent / "shared" / "traces"


def of(a: str, b: str) -> DiffResult:
    paths = [TRACES / f"{name}.json.gz" for name in (a, b)]
    for path in paths:
        if not path.exists():
            pytest.skip(f"no {path} beside the repository")
    return diff(*(explain(path) for path in paths))


def test_pinning_and_three_reads_less_of_a_resnet() -> None:
    result = of("h200/resnet50_pageable_item_nan", "h200/resnet50_pinned")
    assert {(change.status, change.where_a.op) for change in result.waits if change.where_a} == {
        ("gone", "aten::to"),
        ("gone", "aten::item"),
        ("gone", "aten::is_nonzero"),
    }
    (copy,) = result.copies
    assert copy.became == ("pinned", "non-blocking")
    assert copy.bytes.a == copy.bytes.b == 38_535_168 + 512
    assert result.summary.faster == "b"
    assert result.unchanged.kernels == 75


def test_a_decode_loop_as_a_graph() -> None:
    result = of("h200/gpt2_decode_item", "h200/gpt2_decode_graph_noitem")
    assert result.launches
    assert (result.launches.calls.a, result.launches.calls.b) == (1232, 25)
    assert (result.launches.graph_launches.b, result.launches.kernels_in_graphs.b) == (8, 1112)
    assert (result.launches.kernels.a, result.launches.kernels.b) == (1120, 1120)
    (wait,) = result.waits
    assert (wait.status, wait.count.a) == ("gone", 8)
    assert result.summary.ratio == pytest.approx(8.76, abs=0.01)


def test_prefetched_copies_are_the_same_copies_beside_kernels() -> None:
    result = of("h200/offload_sequential", "h200/offload_prefetch")
    assert (result.copies, result.unchanged.copies) == ((), 1)
    parts = {account.key: account.time_ns for account in result.accounts if account.kind == "busy"}
    assert parts["both"].a == 0
    assert parts["both"].b == pytest.approx(8.92e6, rel=0.01)
    assert result.summary.text.startswith("B is 1.56x faster")


def test_two_machines_are_compared_with_caveats_first() -> None:
    result = of("peers/trace_diff/control/control", "peers/trace_diff/test/test")
    assert [caveat.code for caveat in result.caveats][:3] == ["device", "rank", "stacks"]
    assert result.matched_by == "operator"
    assert result.launches
    assert result.launches.graph_launches.a == 0
    assert result.launches.graph_launches.b == 2


@pytest.mark.parametrize(
    ("a", "b", "titles"),
    [
        ("offload_in_order", "offload_ahead", ["Where", "Kernels", "Cost"]),
        ("decode_item", "decode", ["Where", "Launches", "Waits", "Cost"]),
        ("decode.no_stacks", "decode_graph", ["Before", "Where", "Launches", "Waits", "Copies", "Kernels", "Cost"]),
        ("one_shot", "pin_each_step", ["Before"]),
    ],
)
def test_the_report_of_two_recorded_runs(a: str, b: str, titles: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = diff(*(explain(Path("examples", "traces", f"{name}.json.gz")) for name in (a, b)))
    lines = render(document(result), "text").splitlines()
    title = re.compile(
        "(Before) you compare|(Where) a step goes|(Launches|Waits|Copies|Kernels|Cost)( by line)?, per step"
    )
    found = [match[1] or match[2] or match[3] for line in lines if (match := title.match(line))]
    assert found == titles
    assert (lines[0], lines[2]) == (f"A examples/traces/{a}.json.gz", f"B examples/traces/{b}.json.gz")
    assert result.summary.text in " ".join(lines)
    assert max(map(len, lines)) <= 80
