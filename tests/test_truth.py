"""Real runs of an H200: what was worked out by hand is what `explain` says."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from recordings import ALL, H200, recording

from unstall.diagnose.explain import Diagnosis, explain
from unstall.result import Accounts, Finding
from unstall.timeline.columns import CopyDirection, DeviceKind, HostKind, HostMemory


@cache
def report_of(name: str) -> Diagnosis:
    return explain(recording(name))


def document(name: str) -> dict[str, Any]:
    """The trace itself."""
    content = json.loads(gzip.decompress(recording(name).read_bytes()))
    assert isinstance(content, dict)
    return content


def findings_at(report: Diagnosis, function: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.where.function == function]


def parts(accounts: Accounts) -> list[int]:
    return [*msgspec.structs.astuple(accounts.busy_ns), *msgspec.structs.astuple(accounts.idle_ns)]


@pytest.mark.parametrize("path", [path for path in ALL if H200 in path.parents], ids=lambda path: path.name)
def test_every_recorded_run_is_explained_and_its_accounts_add_up(path: Path) -> None:
    result = report_of(path.name.removesuffix(".json.gz")).result
    assert result.steps.wall_ns > 0
    for accounts in (result.accounts, *result.by_device):
        assert min(parts(accounts)) >= 0
        assert sum(parts(accounts)) == accounts.wall_ns == result.steps.wall_ns


class TestWaitBehind:
    """Four waits of 8.9 ms in all, in one function: they look dreadful, and cost nothing."""

    NAME = "wait_behind"

    def test_the_four_waits_of_step_are_at_its_line(self) -> None:
        (finding,) = findings_at(report_of(self.NAME), "step")
        assert (finding.where.file, finding.where.line, finding.where.line_is) == ("programs/waits.py", 152, "def")
        assert finding.count == 4
        assert finding.wait_ns == pytest.approx(sum(call["dur"] for call in self.calls()) * 1000 / 4, abs=1)

    def test_none_of_that_leaves_the_device_idle_and_mending_them_gains_nothing(self) -> None:
        (finding,) = findings_at(report_of(self.NAME), "step")
        assert (finding.exposed_ns, finding.harmless) == (0, True)
        assert finding.gain_ns is None
        assert finding.gain_below_ns is not None
        assert finding.gain_below_ns < 0.01 * finding.wait_ns

    def test_the_device_is_busy_for_98_2_percent_of_those_waits(self) -> None:
        run = report_of(self.NAME).run
        assert run
        lines, waits = run.timeline.lines, run.activity.waits.row.astype(np.int64)
        here = [run.timeline.text(int(lines.function[place])) == "step" for place in run.places.place[waits]]
        assert sum(here) == 4
        assert run.busy_during(waits[here]) == pytest.approx(self.busy_share(), abs=1e-6)
        assert self.busy_share() == pytest.approx(0.982, abs=0.0005)

    def calls(self) -> list[dict[str, Any]]:
        return [event for event in document(self.NAME)["traceEvents"] if event.get("name") == "cudaEventSynchronize"]

    def busy_share(self) -> float:
        """Of the waits, by what ran on the one stream: one op after the other."""
        ops = [event for event in document(self.NAME)["traceEvents"] if event.get("cat") in ("kernel", "gpu_memset")]
        busy = sum(
            max(0, min(wait["ts"] + wait["dur"], op["ts"] + op["dur"]) - max(wait["ts"], op["ts"]))
            for wait in self.calls()
            for op in ops
        )
        return float(busy / sum(wait["dur"] for wait in self.calls()))


class TestGpt2Decode:
    """Sixteen `.item()` calls in two steps: removing them gains a few percent, a CUDA graph five sixths."""

    @pytest.mark.parametrize("name", ["gpt2_decode_item", "gpt2_decode_item.nostack"])
    def test_it_is_launch_bound_and_not_sync_bound(self, name: str) -> None:
        report = report_of(name)
        assert report.verdict.bound_by == "launch"
        assert report.accounts.idle_ns.sync < 0.02 * report.accounts.wall_ns
        assert report.findings[0].rule == "launch-bound"

    def test_its_waits_are_told_and_cost_a_hundredth_of_what_launching_does(self) -> None:
        report = report_of("gpt2_decode_item")
        (item,) = (finding for finding in report.findings if finding.rule == "sync-item")
        assert (item.where.file, item.where.function, item.where.op) == ("pairs.py", "step", "aten::item")
        assert item.count == 16
        assert 50 * item.exposed_ns < report.findings[0].exposed_ns

    def test_as_a_graph_it_is_device_bound(self) -> None:
        assert report_of("gpt2_decode_graph_noitem").verdict.bound_by == "device"


class TestResnet50:
    NAME = "resnet50_pageable_item_nan"

    def test_three_kinds_of_wait_in_step_are_told_apart_by_operator(self) -> None:
        waits = [finding for finding in findings_at(report_of(self.NAME), "step") if finding.wait_ns]
        by_op = {finding.where.op: finding for finding in waits if finding.rule != "serial-copy"}
        assert {op: finding.rule for op, finding in by_op.items()} == {
            "aten::to": "pageable-copy",
            "aten::item": "sync-item",
            "aten::is_nonzero": "sync-bool",
        }
        assert [by_op[op].count for op in ("aten::to", "aten::item", "aten::is_nonzero")] == [6, 3, 3]

    def test_the_pageable_upload_is_115_6_megabytes_in_three_steps(self) -> None:
        run = report_of(self.NAME).run
        assert run
        device = run.timeline.device
        pageable = (device.host_memory == HostMemory.PAGEABLE) & (device.direction == CopyDirection.HOST_TO_DEVICE)
        assert int(device.bytes[pageable].sum()) == 3 * (38_535_168 + 512)

    def test_pinned_there_is_no_pageable_copy(self) -> None:
        rules = {finding.rule for finding in report_of("resnet50_pinned").findings}
        assert "pageable-copy" not in rules

    def test_backward_work_is_at_the_forward_line(self) -> None:
        """The stack of the autograd thread's operators is who called backward(); their line is the forward's."""
        run = report_of(self.NAME).run
        assert run
        host = run.timeline.host
        backward = (host.kind == HostKind.OP) & (host.forward >= 0)
        assert backward.sum() > 1000
        assert (run.places.place[backward] == run.places.place[host.forward[backward]]).all()


class TestOffload:
    def test_the_copies_that_could_overlap_are_found(self) -> None:
        report = report_of("offload_sequential")
        finding = report.findings[0]
        assert (finding.rule, finding.where.function, finding.where.op) == ("serial-copy", "off_seq", "aten::to")
        assert finding.count == 36
        assert finding.exposed_ns == pytest.approx(14.55e6, rel=0.001)
        assert report.verdict.bound_by == "copy"

    def test_prefetched_they_do_and_are_not(self) -> None:
        report = report_of("offload_prefetch")
        assert "serial-copy" not in {finding.rule for finding in report.findings}
        assert report.accounts.busy_ns.both > 0.3 * report.accounts.wall_ns

    def test_the_last_step_ends_with_its_last_device_op(self) -> None:
        """The annotation spans 1.4 of 24.6 ms: the host runs ahead."""
        steps = report_of("offload_sequential").result.steps
        assert (steps.found_by, steps.count) == ("annotation", 3)
        assert steps.mean_ns == pytest.approx(24.63e6, rel=0.001)


@pytest.mark.parametrize("name", ["course_slow_graph", "course_slow_graph.nostack"])
def test_two_graph_launches_own_two_thousand_kernels_each(name: str) -> None:
    run = report_of(name).run
    assert run
    host, device = run.timeline.host, run.timeline.device
    graphs = np.flatnonzero(host.kind == HostKind.GRAPH_LAUNCH)
    kernels = np.flatnonzero(device.kind == DeviceKind.KERNEL)
    assert [int((device.launch[kernels] == graph).sum()) for graph in graphs] == [2000, 2000]


class TestRecordedFromTheMiddle:
    """A run of which all that the host did before its second step is cut off: the recording might have begun there."""

    NAME = "resnet50_pinned"

    def test_with_all_calls_every_device_op_has_its_own(self) -> None:
        report = report_of(self.NAME)
        assert report.run
        assert (report.run.timeline.device.launch >= 0).all()
        assert report.result.integrity.ok

    def test_only_ops_whose_call_is_not_in_the_file_have_none_and_a_note_counts_them(self, tmp_path: Path) -> None:
        trace = document(self.NAME)
        second = min(event["ts"] for event in trace["traceEvents"] if event["name"] == "ProfilerStep#1")
        on_device = ("kernel", "gpu_memcpy", "gpu_memset")
        early = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["ts"] < second]
        lost = [event["args"]["correlation"] for event in early if event["cat"] in ("cuda_runtime", "cuda_driver")]
        gone = {id(event) for event in early if event["cat"] not in on_device}
        trace["traceEvents"] = [event for event in trace["traceEvents"] if id(event) not in gone]
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(trace))
        report = explain(path)
        assert report.run
        device = report.run.timeline.device
        orphans = device.launch < 0
        assert orphans.sum() == 793
        assert (orphans == np.isin(device.correlation, lost)).all()
        assert report.result.integrity.ok
        assert report.result.integrity.notes[0] == "793 of 2,379 device ops were launched before the recording began"
