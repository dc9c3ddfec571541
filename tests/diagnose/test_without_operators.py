"""Recorded runs read with and without their operators: CUDA's calls and lines alone say the same of them.

But for this: an operator that makes no call for long cannot be told from Python, and a wait whose operator no built-in
function names has a broader rule.
"""

from __future__ import annotations

import functools
import gzip
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from unstall.diagnose.explain import Diagnosis, explain
from unstall.read import load
from unstall.result import IDLE_CAUSES, Accounts, Finding

TRACES = Path(__file__).parents[2] / "examples" / "traces"
SMALL = ("decode_item", "downloads", "train_item", "train_three_waits", "uploads", "waits")
LARGE = (
    "bert_amp",
    "compiled",
    "decode",
    "empty_cache",
    "gpt2_decode_item",
    "python_bound",
    "resnet50_pageable_item_nan",
)
LONG_OPERATORS = {"compiled": 0.12}  # of a step: an operator of compiled code makes no call for 280 µs
EACH = pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
BROADER = {
    "sync-bool": "sync-item",  # `if tensor` calls no built-in function
    "sync-mask": "sync-nonzero",  # so does x[mask]
}


@functools.cache
def reports(name: str) -> tuple[Diagnosis, Diagnosis]:
    """As recorded, and without operators."""
    path = TRACES / f"{name}.json.gz"
    document = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") != "cpu_op"]
    with TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.json"
        bare.write_bytes(msgspec.json.encode(document))
        return explain(path), explain(load(bare))


def waits(findings: tuple[Finding, ...]) -> dict[tuple[str, str | None, int | None], tuple[int, int]]:
    """(count, ns waited) of each rule and line."""
    found: Counter[tuple[str, str | None, int | None]] = Counter()
    waited = found.copy()
    for finding in findings:
        if finding.rule.startswith(("sync-", "pageable", "blocking")):
            key = (BROADER.get(finding.rule, finding.rule), finding.where.file, finding.where.line)
            found[key] += finding.count
            waited[key] += finding.wait_ns
    return {key: (found[key], waited[key]) for key in found}


def share(accounts: Accounts, *causes: str) -> float:
    return sum(int(getattr(accounts.idle_ns, cause)) for cause in causes) / accounts.wall_ns


@EACH
def test_it_is_bound_by_the_same(name: str) -> None:
    whole, bare = reports(name)
    if name not in LONG_OPERATORS:
        assert bare.verdict.bound_by == whole.verdict.bound_by
    else:  # as far as it can be told: what each resource gains if it is free
        replay, ones, others = whole.result.replay, whole.verdict.if_free, bare.verdict.if_free
        assert replay is not None
        assert ones is not None
        assert others is not None
        unknown = LONG_OPERATORS[name] * replay.undistorted_mean_step_ns
        assert all(abs(gain - others[each]) <= unknown for each, gain in ones.items())


@EACH
def test_the_same_steps_are_found(name: str) -> None:
    whole, bare = reports(name)
    assert bare.result.steps == whole.result.steps


@EACH
def test_the_same_waits_are_found_at_the_same_lines(name: str) -> None:
    whole, bare = reports(name)
    assert waits(bare.findings) == waits(whole.findings)


@EACH
def test_what_the_device_did_and_what_kept_it_waiting_is_the_same(name: str) -> None:
    """After a wait, and between launches, a twentieth of a step at most goes from dispatching to Python or back."""
    whole, bare = reports(name)
    assert bare.accounts.busy_ns == whole.accounts.busy_ns
    host = ("launch", "python", "sync", "copy")
    for cause in host:
        most = LONG_OPERATORS.get(name, 0.05)
        assert share(bare.accounts, cause) == pytest.approx(share(whole.accounts, cause), abs=most)
    for others in (host, *((cause,) for cause in IDLE_CAUSES if cause not in host)):
        # A launch has its latency apart, a wait has it with its own time.
        assert share(bare.accounts, *others) == pytest.approx(share(whole.accounts, *others), abs=1e-3)


@EACH
def test_the_replay_is_as_true(name: str) -> None:
    whole, bare = reports(name)
    assert whole.result.replay
    assert bare.result.replay
    assert bare.result.replay.error == pytest.approx(whole.result.replay.error, abs=0.002)
