"""Real runs, recorded by others and by us: what was worked out by hand is what `explain` says.

The traces lie beside the repository, in ../shared/traces; those of other projects may not be copied into it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

from unstall.diagnose.explain import Diagnosis, explain
from unstall.errors import TraceError
from unstall.result import Accounts, Finding
from unstall.timeline.columns import CopyDirection, DeviceKind, HostKind, HostMemory

TRACES = Path(__file__).parents[2] / "shared" / "traces"
ALL = sorted(TRACES.rglob("*.json.gz"))
NONE_HERE = pytest.mark.skip(reason="no ../shared/traces beside the repository")


@cache
def explained(name: str) -> Diagnosis:
    return explain(TRACES / name)


def report_of(name: str) -> Diagnosis:
    if not (TRACES / name).exists():
        pytest.skip(f"no ../shared/traces/{name} beside the repository")
    return explained(name)


def findings_at(report: Diagnosis, function: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.where.function == function]


def parts(accounts: Accounts) -> list[int]:
    return [*msgspec.structs.astuple(accounts.busy_ns), *msgspec.structs.astuple(accounts.idle_ns)]


@pytest.mark.parametrize(
    "path", ALL or [pytest.param(TRACES, marks=NONE_HERE)], ids=lambda path: str(path.relative_to(TRACES))
)
def test_every_recorded_run_is_explained_and_its_accounts_add_up(path: Path) -> None:
    result = report_of(str(path.relative_to(TRACES))).result
    assert result.steps.wall_ns > 0
    for accounts in (result.accounts, *result.by_device):
        assert min(parts(accounts)) >= 0
        assert sum(parts(accounts)) == accounts.wall_ns == result.steps.wall_ns


def test_an_export_of_another_profiler_is_refused_with_a_sentence_that_says_what_it_is() -> None:
    with pytest.raises(TraceError, match=r"nsys_h100_2gpu\.sqlite\.gz.*SQLite database.*export_chrome_trace"):
        report_of("peers/nsys_h100_2gpu.sqlite.gz")


class TestOwlv2:
    """Five waits of 358.5 ms in all, in one function: they look dreadful, and cost nothing."""

    NAME = "peers/h100_owlv2.json.gz"

    def test_the_five_waits_of_box_predictor_are_at_its_line(self) -> None:
        (finding,) = findings_at(report_of(self.NAME), "box_predictor")
        assert str(finding.where.file).endswith("models/owlv2/modeling_owlv2.py")
        assert (finding.where.line, finding.where.line_is) == (1421, "def")
        assert (finding.count, finding.wait_ns) == (5, 358_492_939)

    def test_hardly_any_of_that_leaves_the_device_idle(self) -> None:
        (finding,) = findings_at(report_of(self.NAME), "box_predictor")
        assert finding.exposed_ns < 0.003 * finding.wait_ns

    def test_by_itself_mending_them_gains_next_to_nothing(self) -> None:
        (finding,) = findings_at(report_of(self.NAME), "box_predictor")
        assert finding.gain_ns is not None
        assert finding.gain_ns < 0.01 * finding.wait_ns

    def test_the_device_is_busy_for_98_6_percent_of_those_waits(self) -> None:
        run = report_of(self.NAME).run
        assert run
        lines, waits = run.timeline.lines, run.activity.waits.row.astype(np.int64)
        here = [run.timeline.text(int(lines.function[place])) == "box_predictor" for place in run.places.place[waits]]
        assert sum(here) == 5
        assert run.busy_during(waits[here]) == pytest.approx(0.986, abs=0.0005)

    def test_what_the_device_does_wait_for_is_data(self) -> None:
        report = report_of(self.NAME)
        assert report.verdict.bound_by == "input"
        assert report.findings[0].rule == "data-loading"
        assert not report.findings[0].harmless


class TestGpt2Decode:
    """Sixteen `.item()` calls in two steps: removing them gains a few percent, a CUDA graph five sixths."""

    @pytest.mark.parametrize("name", ["h200/gpt2_decode_item.json.gz", "h200/gpt2_decode_item.nostack.json.gz"])
    def test_it_is_launch_bound_and_not_sync_bound(self, name: str) -> None:
        report = report_of(name)
        assert report.verdict.bound_by == "launch"
        assert report.accounts.idle_ns.sync < 0.02 * report.accounts.wall_ns
        assert report.findings[0].rule == "launch-bound"

    def test_its_waits_are_told_and_cost_a_hundredth_of_what_launching_does(self) -> None:
        report = report_of("h200/gpt2_decode_item.json.gz")
        (item,) = (finding for finding in report.findings if finding.rule == "sync-item")
        assert (item.where.file, item.where.function, item.where.op) == ("pairs.py", "step", "aten::item")
        assert item.count == 16
        assert 50 * item.exposed_ns < report.findings[0].exposed_ns

    def test_as_a_graph_it_is_device_bound(self) -> None:
        assert report_of("h200/gpt2_decode_graph_noitem.json.gz").verdict.bound_by == "device"


class TestResnet50:
    NAME = "h200/resnet50_pageable_item_nan.json.gz"

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
        rules = {finding.rule for finding in report_of("h200/resnet50_pinned.json.gz").findings}
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
        report = report_of("h200/offload_sequential.json.gz")
        finding = report.findings[0]
        assert (finding.rule, finding.where.function, finding.where.op) == ("serial-copy", "off_seq", "aten::to")
        assert finding.count == 36
        assert finding.exposed_ns == pytest.approx(14.55e6, rel=0.001)
        assert report.verdict.bound_by == "copy"

    def test_prefetched_they_do_and_are_not(self) -> None:
        report = report_of("h200/offload_prefetch.json.gz")
        assert "serial-copy" not in {finding.rule for finding in report.findings}
        assert report.accounts.busy_ns.both > 0.3 * report.accounts.wall_ns

    def test_the_last_step_ends_with_its_last_device_op(self) -> None:
        """The annotation spans 1.4 of 24.6 ms: the host runs ahead."""
        steps = report_of("h200/offload_sequential.json.gz").result.steps
        assert (steps.found_by, steps.count) == ("annotation", 3)
        assert steps.mean_ns == pytest.approx(24.63e6, rel=0.001)


@pytest.mark.parametrize("name", ["h200/course_slow_graph.json.gz", "h200/course_slow_graph.nostack.json.gz"])
def test_two_graph_launches_own_two_thousand_kernels_each(name: str) -> None:
    run = report_of(name).run
    assert run
    host, device = run.timeline.host, run.timeline.device
    graphs = np.flatnonzero(host.kind == HostKind.GRAPH_LAUNCH)
    kernels = np.flatnonzero(device.kind == DeviceKind.KERNEL)
    assert [int((device.launch[kernels] == graph).sum()) for graph in graphs] == [2000, 2000]


class TestTraceDiff:
    """A pair of one model, without and with CUDA graphs; some calls of the second were not recorded."""

    CONTROL, TEST = "peers/trace_diff/control/control.json.gz", "peers/trace_diff/test/test.json.gz"

    def test_every_device_op_of_the_control_has_its_call(self) -> None:
        report = report_of(self.CONTROL)
        assert report.run
        assert (report.run.timeline.device.launch >= 0).all()
        assert report.result.integrity.ok

    def test_graph_launches_own_all_kernels_of_their_graphs(self) -> None:
        run = report_of(self.TEST).run
        assert run
        host, device = run.timeline.host, run.timeline.device
        launch = device.launch[device.launch >= 0]
        _, owned = np.unique(launch[host.kind[launch] == HostKind.GRAPH_LAUNCH], return_counts=True)
        assert owned.tolist() == 6 * [339] + 6 * [502]

    def test_only_ops_whose_call_is_not_in_the_file_have_none_and_a_note_counts_them(self) -> None:
        report = report_of(self.TEST)
        assert report.run
        timeline = report.run.timeline
        orphans = timeline.device.launch < 0
        assert orphans.sum() == 614
        calls = (timeline.host.kind >= HostKind.LAUNCH) & (timeline.host.kind <= HostKind.CALL)
        assert not np.isin(timeline.device.correlation[orphans], timeline.host.correlation[calls]).any()
        ids = timeline.host.correlation[calls]
        assert timeline.device.correlation[orphans].max() < ids[ids >= 0].min()
        assert report.result.integrity.ok
        assert report.result.integrity.notes[0] == "614 of 15,632 device ops were launched before the recording began"


class TestDataLoading:
    """The same training with no worker and with four: the sample traces of Kineto's TensorBoard plugin, torch 1.8."""

    WITHOUT = "peers/resnet50_num_workers_0_worker0.1623143089861.pt.trace.json.gz"
    WITH = "peers/resnet50_num_workers_4_worker0.1623212756351.pt.trace.json.gz"

    def test_old_category_names_are_read(self) -> None:
        result = report_of(self.WITHOUT).result
        assert (result.steps.found_by, result.steps.count) == ("annotation", 6)
        assert result.source.device_ops > 1000

    def test_without_workers_the_device_waits_longer_for_data(self) -> None:
        without, with_four = (report_of(name).accounts.idle_ns.input for name in (self.WITHOUT, self.WITH))
        assert without > 2 * with_four
