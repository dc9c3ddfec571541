"""torch.profiler sees the virtual device."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.entry.running import facts

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("profiled", "-m", "unstall.virtual")


@slow
def test_events_have_the_devices_kernels_and_copies_with_virtual_times(told: dict[str, Any]) -> None:
    assert [name for name in told["copies"] if "Memcpy" in name] == ["Memcpy HtoD (Pageable -> Device)"]
    assert told["kernels"] >= 8
    assert 0 < told["busy_us"] < told["between events_us"]


@slow
def test_annotations_are_seen_from_the_device_too(told: dict[str, Any]) -> None:
    assert told["annotated"] == ["Optimizer.step#SGD.step", "forward"]


@slow
def test_operators_have_kernels_parents_and_stacks(told: dict[str, Any]) -> None:
    calls, kernels, shapes = told["addmm"]
    assert calls == 2
    assert kernels >= 1
    assert shapes == [[64], [32, 64], [64, 64], [], []]
    assert told["parents"] == ["aten::linear", "forward"]
    assert told["stack"] is True


@slow
def test_backward_operators_name_their_forward_operators(told: dict[str, Any]) -> None:
    evaluation, node = [True, True, 0], [True, True, 1]  # as torch.profiler has them for CPUs
    assert told["backward"] == [evaluation, evaluation, node, node]
    assert told["arrows"] == [6, 6]


@slow
def test_an_activity_that_is_turned_off_is_not_recorded(told: dict[str, Any]) -> None:
    assert told["toggled"] == [4, 2.0]  # of three steps, two with each activity


@slow
def test_kernels_that_were_queued_before_the_profile_began_are_not_in_it(told: dict[str, Any]) -> None:
    assert told["queued before"] == [1, 1]


@slow
def test_a_timeline_of_memory_is_refused_with_what_to_use_instead(told: dict[str, Any]) -> None:
    assert "_record_memory_history" in told["memory timeline"]


@slow
def test_averages_and_tables(told: dict[str, Any]) -> None:
    assert told["averages"] == [2, True]
    assert told["table"] is True


@slow
def test_an_exported_trace_has_the_same_kernels(told: dict[str, Any]) -> None:
    assert told["exported"] == told["kernels"]


@slow
def test_schedules_and_handlers_work(told: dict[str, Any]) -> None:
    assert told["ready"] == 2
    assert told["marks"] == 4  # two on the host, two on the device
    assert told["explained"] == 2


@slow
def test_activities_are_what_was_asked_for(told: dict[str, Any]) -> None:
    assert told["cpu alone"] == [0, True]
    assert told["cuda alone"] == [True, False]
    assert told["older"] is True
