"""Pairs of real runs: what is known to have changed between them is what `diff` says, and whole reports of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recordings import ROOT, recording

from unstall import load
from unstall.changes.result import DiffResult
from unstall.changes.runs import diff
from unstall.diagnose.explain import explain
from unstall.document.formats import render
from unstall.report.diff import document


def of(a: str, b: str) -> DiffResult:
    return diff(*(explain(recording(name)) for name in (a, b)))


def test_pinning_and_three_reads_less_of_a_resnet() -> None:
    result = of("resnet50_pageable_item_nan", "resnet50_pinned")
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
    result = of("gpt2_decode_item", "gpt2_decode_graph_noitem")
    assert result.launches
    assert (result.launches.calls.a, result.launches.calls.b) == (1232, 25)
    assert (result.launches.graph_launches.b, result.launches.kernels_in_graphs.b) == (8, 1112)
    assert (result.launches.kernels.a, result.launches.kernels.b) == (1120, 1120)
    (wait,) = result.waits
    assert (wait.status, wait.count.a) == ("gone", 8)
    assert result.summary.ratio == pytest.approx(8.76, abs=0.01)


def test_prefetched_copies_are_the_same_copies_beside_kernels() -> None:
    result = of("offload_sequential", "offload_prefetch")
    assert (result.copies, result.unchanged.copies) == ((), 1)
    parts = {account.key: account.time_ns for account in result.accounts if account.kind == "busy"}
    assert parts["both"].a == 0
    assert parts["both"].b == pytest.approx(8.92e6, rel=0.01)
    assert result.summary.text.startswith("B is 1.56x faster")


def test_two_machines_are_compared_with_caveats_first() -> None:
    one, other = (load(recording(name)) for name in ("gpt2_decode_item", "gpt2_decode_graph_noitem.nostack"))
    one = one.with_meta(rank=0)
    other = other.with_meta(rank=1, devices=("Tesla V100-SXM2-32GB",))
    result = diff(explain(one), explain(other))
    assert [caveat.code for caveat in result.caveats][:3] == ["device", "rank", "stacks"]
    assert result.matched_by == "operator"
    assert result.launches
    assert result.launches.graph_launches.a == 0
    assert result.launches.graph_launches.b == 8


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
