"""Recorded runs with planted causes (`examples/`): `explain` finds each at its line, and nothing that is not there."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unstall.diagnose.explain import explain
from unstall.diagnose.rules.device_work import DEVICE_WORK
from unstall.result import Accounts, Finding, Result

TRACES = Path(__file__).parents[1] / "examples" / "traces"
EXPECTED: dict[str, dict[str, Any]] = json.loads((TRACES / "expected.json").read_text())

RECORDINGS = [(name, trace) for name, program in EXPECTED.items() for trace in program["traces"]]
WITH_DEVICE = [(name, trace["trace"]) for name, trace in RECORDINGS if trace["device"]]
NEEDS_STACKS = {"sync-print", "sync-tensor", "sync-clip-grad", "sync-grad-scaler"}  # told from others by frames alone
CAUSES: list[tuple[str, bool, dict[str, Any]]] = [
    (trace["trace"], trace["stacks"], cause)
    for name, trace in RECORDINGS
    if trace["device"]
    for cause in EXPECTED[name]["causes"]
    if trace["stacks"] or cause["finding"] not in NEEDS_STACKS
]
CLEAN = ["decode_graph", "ddp_overlapped", "triton_kernel", "two_streams"]


@functools.cache
def result(trace: str) -> Result:
    return explain(TRACES / trace, step=EXPECTED[trace.split(".")[0]]["step_name"]).result


def planted(found: Result, cause: dict[str, Any], *, stacks: bool) -> list[Finding]:
    """The findings that name this cause: its rule and, as far as the recording knows them, its place and operator."""
    return [
        finding
        for finding in found.findings
        if finding.rule == cause["finding"]
        and (cause["op"] is None or finding.where.op == cause["op"])
        and (
            not stacks
            or cause["function"] is None
            or (finding.where.file, finding.where.line, finding.where.function)
            == (cause["file"], cause["def_line"], cause["function"])
        )
    ]


def each_cause(chosen: Callable[[bool, dict[str, Any]], bool]) -> pytest.MarkDecorator:
    """One test for each planted cause of which `chosen(stacks, cause)` holds."""
    rows = [row for row in CAUSES if chosen(row[1], row[2])]
    names = [f"{trace.removesuffix('.json.gz')}-{cause['function']}-{cause['op']}" for trace, _, cause in rows]
    return pytest.mark.parametrize(("trace", "stacks", "cause"), rows, ids=names)


@each_cause(lambda stacks, cause: True)
def test_a_planted_cause_is_found_at_its_place(trace: str, stacks: bool, cause: dict[str, Any]) -> None:
    assert planted(result(trace), cause, stacks=stacks)


@each_cause(lambda stacks, cause: stacks and cause["costs"] is True)
def test_a_cause_that_costs_is_said_to_cost(trace: str, stacks: bool, cause: dict[str, Any]) -> None:
    found = planted(result(trace), cause, stacks=stacks)
    assert any((f.once or not f.harmless) and (f.exposed_ns > 0 or (f.gain_ns or 0) > 0) for f in found)


@each_cause(lambda stacks, cause: cause["costs"] is False)
def test_a_cause_that_costs_nothing_is_said_to_cost_nothing(trace: str, stacks: bool, cause: dict[str, Any]) -> None:
    found = planted(result(trace), cause, stacks=stacks)
    assert [f for f in found if not f.harmless or f.exposed_ns > 0.001 * result(trace).steps.mean_ns] == []


@pytest.mark.parametrize(("name", "trace"), WITH_DEVICE)
def test_the_verdict_is_right(name: str, trace: str) -> None:
    assert result(trace).verdict.bound_by in EXPECTED[name]["bound_by"]


def test_without_device_activity_nothing_is_said_about_an_idle_device() -> None:
    found = result("train_item.no_device.json.gz")
    assert found.verdict.bound_by == "none"
    assert [f.rule for f in found.findings if f.exposed_ns] == []


@pytest.mark.parametrize(("name", "trace"), WITH_DEVICE)
def test_steps_are_found(name: str, trace: str) -> None:
    steps, expected = result(trace).steps, EXPECTED[name]
    assert (steps.found_by, steps.count) == (expected["found_by"], expected["steps"])


@pytest.mark.parametrize(("name", "trace"), WITH_DEVICE)
def test_the_parts_add_up_to_the_nanosecond(name: str, trace: str) -> None:
    found = result(trace)
    for accounts in (found.accounts, *found.by_device):
        parts = [
            getattr(part, field) for part in (accounts.busy_ns, accounts.idle_ns) for field in part.__struct_fields__
        ]
        assert min(parts) >= 0
        assert sum(parts) == accounts.wall_ns


@pytest.mark.parametrize("name", CLEAN)
def test_where_nothing_stalls_nothing_is_found_step_after_step(name: str) -> None:
    found = result(f"{name}.json.gz")
    least_ns = 0.05 * found.steps.mean_ns
    costly = [f for f in found.findings if not f.harmless and min(f.exposed_ns, f.gain_ns or f.exposed_ns) > least_ns]
    costly = [f for f in costly if f.rule not in DEVICE_WORK]  # the device at work is no stall
    assert [f.rule for f in costly if f.count >= found.steps.count] == []


@pytest.mark.parametrize("name", ["loader_in_process", "loader_starved", "pin_each_step", "python_bound"])
def test_what_a_stall_on_the_host_exposes_is_what_mending_it_was_measured_to_gain(name: str) -> None:
    """Where next to nothing else happens, and the profiler slows little of it."""
    measured_ns = 1e6 * (EXPECTED[name]["plain_step_ms"] - EXPECTED[name]["mended_step_ms"])
    found = planted(result(f"{name}.json.gz"), EXPECTED[name]["causes"][0], stacks=True)
    assert sum(f.exposed_ns for f in found) == pytest.approx(measured_ns, rel=0.15)


@pytest.mark.parametrize(
    "function", ["read_item", "read_cpu", "read_list", "branch", "find_nonzero", "wait_device", "wait_stream"]
)
def test_a_wait_exposes_about_what_it_was_measured_to_cost(function: str) -> None:
    """The wait is 0.5 ms, of which the measured cost is some 5 %: the rest is waiting, not stalling."""
    alone_ms = EXPECTED["waits"]["alone_ms"]
    measured_ns = 1e6 * (alone_ms[function] - alone_ms["no wait"])
    (cause,) = [c for c in EXPECTED["waits"]["causes"] if c["function"] == function]
    (found,) = planted(result("waits.json.gz"), cause, stacks=True)
    assert found.wait_ns > 10 * found.exposed_ns
    assert 0.3 * measured_ns < found.exposed_ns < 3 * measured_ns


def test_what_synchronize_waits_is_the_length_of_its_call() -> None:
    events = json.loads(gzip.decompress((TRACES / "waits.json.gz").read_bytes()))["traceEvents"]
    steps = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")]
    last = max(e["ts"] + e["dur"] for e in steps)
    calls = [e["dur"] for e in events if e.get("name") == "cudaDeviceSynchronize" and e["ts"] < last]
    (cause,) = [c for c in EXPECTED["waits"]["causes"] if c["function"] == "wait_device"]
    (found,) = planted(result("waits.json.gz"), cause, stacks=True)
    assert found.count == len(calls) == 3
    assert found.wait_ns == pytest.approx(1000 * sum(calls) / 3, abs=1)


@pytest.mark.parametrize("name", ["waits", "wait_behind", "offload_hand_in_hand"])
def test_without_synchronisation_events_the_same_is_found(name: str) -> None:
    def places(found: Result) -> set[tuple[object, ...]]:
        return {(f.rule, f.where.file, f.where.line, f.where.function, f.where.op) for f in found.findings}

    assert places(result(f"{name}.no_syncs.json.gz")) == places(result(f"{name}.json.gz"))


def test_collectives_after_the_backward_pass_are_exposed_for_all_their_time() -> None:
    events = json.loads(gzip.decompress((TRACES / "all_reduce_after.json.gz").read_bytes()))["traceEvents"]
    total_us = sum(e["dur"] for e in events if e.get("cat") == "kernel" and e["name"].startswith("ncclDevKernel"))
    (found,) = [f for f in result("all_reduce_after.json.gz").findings if f.rule == "exposed-comm"]
    assert found.exposed_ns == pytest.approx(1000 * total_us / 3, rel=0.01)
    assert result("all_reduce_after.json.gz").source.rank == 0


def test_two_devices_taken_together_are_busy_while_each_is_idle_half_the_time() -> None:
    found = result("model_parallel.json.gz")

    def busy(accounts: Accounts) -> float:
        parts = accounts.busy_ns
        return (parts.compute + parts.copy + parts.both + parts.comm) / accounts.wall_ns

    assert busy(found.accounts) > 0.95
    assert [d.device for d in found.by_device] == [0, 1]
    assert all(0.4 < busy(device) < 0.6 for device in found.by_device)


def test_a_device_that_idles_while_the_other_computes_waits_for_it() -> None:
    """The host launches the backward pass 0.1 ms after the first device ran dry; it starts 4.6 ms later, when the
    second device is done: held by an event, whatever the host did meanwhile."""
    idle = result("model_parallel.json.gz").by_device[0].idle_ns
    assert idle.event > 0.9 * sum(getattr(idle, cause) for cause in idle.__struct_fields__)


def test_that_two_devices_take_turns_is_found_and_said() -> None:
    """Each waits half the time, and nearly all of it for the other."""
    found = result("model_parallel.json.gz")
    (turns,) = [f for f in found.findings if f.rule == "serial-devices"]
    assert (turns.where.file, turns.where.function) == ("programs/parallel.py", "step")
    assert turns.exposed_ns == pytest.approx(0.45 * found.steps.mean_ns, rel=0.05)
    assert "They take turns" in found.verdict.text


def test_copies_that_run_beside_all_computation_and_longer_are_what_bounds_the_run() -> None:
    found = result("offload_ahead.json.gz")
    assert found.verdict.bound_by == "copy"
    (copies,) = [f for f in found.findings if f.rule == "partial-overlap"]
    assert copies.count == 24
    assert copies.exposed_ns == pytest.approx(found.accounts.busy_ns.copy / 3, rel=0.01)


def test_the_backward_pass_is_counted_at_the_forward_lines() -> None:
    """A linear layer's backward has two products for the forward's one; few kernels are the optimizer's."""
    found = result("bert_amp.json.gz")
    model = [line for line in found.lines if line.where.file and line.where.file.endswith("modeling_bert.py")]
    assert sum(line.device_ns for line in model) > 0.6 * sum(line.device_ns for line in found.lines)
