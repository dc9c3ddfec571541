"""The whole result: its order, its verdict, its notes, and cost by line."""

from __future__ import annotations

import msgspec
import pytest
from findings import result_of
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.errors import TraceError
from unstall.result import Result


def typical() -> TraceBuilder:
    """Three steps of a program that waits in two places, one of which costs nothing."""
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 80, "main"):
            with trace.frame("train.py", 12, "train"):
                with trace.op("aten::mm"):
                    trace.launch("gemm", 300)
                trace.item()
            with trace.frame("train.py", 40, "log"):
                trace.launch("gemm", 2_000, stream=20)
                with trace.op("aten::is_nonzero"):
                    trace.copy("DtoH", 1, size=4)
                    trace.sync()
    return trace


def test_findings_come_costliest_first_and_harmless_ones_last() -> None:
    findings = result_of(typical()).findings
    keys = [(finding.harmless, -finding.exposed_ns) for finding in findings]
    assert keys == sorted(keys)
    assert [finding.rule for finding in findings if finding.rule.startswith("sync-")] == ["sync-item", "sync-bool"]
    # Also without the first wait a step takes as long as the work on the other stream.
    assert [(finding.harmless, finding.gain_ns) for finding in findings if finding.rule.startswith("sync-")] == [
        (True, 0),
        (True, 0),
    ]


def test_every_wait_is_listed() -> None:
    trace = TraceBuilder()
    trace.launch("gemm", 1_000_000, stream=20)
    for line in range(50):
        with trace.frame("train.py", line, f"function_{line}"):
            trace.item()
    waits = [finding for finding in result_of(trace).findings if finding.rule == "sync-item"]
    assert len(waits) == 50


def test_the_result_survives_its_json() -> None:
    result = result_of(typical())
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result


def test_findings_are_in_order_of_what_mending_them_gains() -> None:
    result = result_of(typical())
    gains = [f.exposed_ns if f.gain_ns is None else f.gain_ns for f in result.findings if not f.harmless]
    assert gains == sorted(gains, reverse=True)
    assert {finding.gain_ns for finding in result.findings} == {0}  # the other stream's 2 ms bound the step


def test_a_wait_that_keeps_the_host_from_launching_gains_when_mended() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.op("aten::mm"):
                trace.launch("gemm", 300)
            trace.item()
            trace.work(200)
    (finding,) = (f for f in result_of(trace).findings if f.rule == "sync-item")
    # The host's 200 µs are then hidden behind the device's 300.
    assert finding.gain_ns is not None
    assert 180_000 <= finding.gain_ns <= 230_000


def test_without_device_work_nothing_is_replayed() -> None:
    trace = TraceBuilder()
    with trace.op("aten::relu"):
        trace.work(100)
    result = result_of(trace)
    assert (result.replay, result.plan, result.floor_ns) == (None, None, None)


def test_every_finding_says_what_to_do_and_when_that_is_safe() -> None:
    for finding in result_of(typical()).findings:
        assert finding.title
        assert finding.saw
        assert finding.fix
        assert finding.safe_if


class TestVerdict:
    def test_device_bound(self) -> None:
        trace = TraceBuilder()
        for _ in range(10):
            trace.launch("gemm", 1_000)
        verdict = result_of(trace).verdict
        assert (verdict.bound_by, verdict.basis) == ("device", "undistorted")
        assert verdict.text.startswith("Device-bound: a step would be shorter by 99.7 % if kernels took no time.")

    def test_launch_bound(self) -> None:
        trace = TraceBuilder()
        for _ in range(10):
            with trace.op("aten::relu"):
                trace.launch("relu", 1)
        assert result_of(trace).verdict.bound_by == "launch"

    def test_sync_bound(self) -> None:
        trace = TraceBuilder()
        for _ in range(10):
            trace.launch("relu", 45)
            trace.sync()
            trace.work(45)
        assert result_of(trace).verdict.bound_by == "sync"

    def test_copies_count_both_while_they_run_and_while_the_device_idles_for_them(self) -> None:
        """Copying 90 µs at a time, and idling for it, is more than computing 100."""
        trace = TraceBuilder()
        for _ in range(5):
            with trace.op("aten::to"):
                trace.copy("HtoD", 90, memory="Pageable")
                trace.work(50)
            trace.launch("gemm", 100)
        result = result_of(trace)
        assert result.verdict.bound_by == "copy"
        assert result.accounts.busy_ns.copy < result.accounts.busy_ns.compute

    def test_without_device_work_there_is_nothing_to_bound(self) -> None:
        trace = TraceBuilder()
        with trace.op("aten::mm"):
            trace.work(100)
        verdict = result_of(trace).verdict
        assert verdict.bound_by == "none"
        assert "No device work was recorded" in verdict.text

    def test_steps_without_device_work_are_not_judged_by_other_work(self) -> None:
        trace = TraceBuilder()
        trace.launch("gemm", 100)
        trace.sync()
        with trace.step():
            trace.work(100)
        verdict = result_of(trace).verdict
        assert verdict.bound_by == "none"
        assert "into these steps" in verdict.text

    def test_several_devices_are_told_one_by_one(self) -> None:
        """The first is busy 100 of 212 µs, the second 200."""
        trace = TraceBuilder(devices=("first", "second"))
        trace.launch("gemm", 100, device=0)
        trace.launch("gemm", 200, device=1)
        assert "47.2 %, 94.3 %" in explain(trace.timeline(), as_recorded=True).verdict.text

    def test_what_is_missing_from_the_file_is_a_warning_in_the_verdict(self) -> None:
        trace = TraceBuilder()
        trace.launch("gemm", 100)
        trace.launch("gemm", 100)
        events = [event for event in trace.events if event["cat"] != "cuda_runtime" or event["ts"] == 0]
        result = explain(trace.timeline(events)).result
        assert not result.integrity.ok
        assert result.integrity.notes[0].startswith("1 of 2 device ops have no host call in the file")
        assert "integrity" in result.verdict.text

    def test_what_was_launched_before_the_recording_is_none(self) -> None:
        trace = TraceBuilder()
        trace.launch("gemm", 100)
        trace.launch("gemm", 100)
        events = [event for event in trace.events if event["cat"] != "cuda_runtime" or event["ts"] > 0]
        result = explain(trace.timeline(events)).result
        assert result.integrity.ok
        assert result.integrity.notes[0] == "1 of 2 device ops were launched before the recording began"


class TestLines:
    def test_a_line_has_what_it_launched_waited_and_left_idle(self) -> None:
        """11 µs until the first kernel, 200 of it and 1 of copy, a wait of 195, then 31 until the graph begins."""
        trace = TraceBuilder()
        with trace.step():
            with trace.frame("train.py", 12, "train"):
                with trace.op("aten::mm"):
                    trace.launch("gemm", 200)
                trace.item()
            trace.work(20)
            with trace.frame("train.py", 30, "finish"):
                trace.graph([100, 100, 100], gap_us=0)
        finish, train = result_of(trace).lines
        assert (train.where.line, train.launches, train.device_ops) == (12, 2, 2)
        assert (train.device_ns, train.wait_ns) == (201_000, 195_000)
        assert (train.idle_ns, train.idle_cause) == (11_000 + 31_000, "sync")
        assert (finish.where.line, finish.launches, finish.device_ops) == (30, 1, 3)
        assert (finish.device_ns, finish.wait_ns, finish.idle_ns, finish.idle_cause) == (300_000, 0, 0, None)

    def test_a_line_has_the_copies_between_host_and_device(self) -> None:
        trace = TraceBuilder()
        with trace.frame("train.py", 12, "train"):
            trace.launch("gemm", 200)
            trace.item()
        result = result_of(trace)
        assert result.lines[0].device_ops == 2
        assert result.copies is not None
        assert [(line.where.line, line.count) for line in result.copies.lines] == [(12, 1)]

    def test_a_line_costs_a_mean_per_step(self) -> None:
        trace = TraceBuilder()
        for length in (100, 300):
            with trace.step(), trace.frame("train.py", 12, "train"):
                trace.launch("gemm", length)
        (line,) = result_of(trace).lines
        assert (line.launches, line.device_ns) == (2, 200_000)


def test_a_file_that_is_not_there_is_an_error_for_the_user() -> None:
    with pytest.raises(TraceError, match=r"nowhere\.json"):
        explain("nowhere.json")
