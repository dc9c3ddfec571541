"""Guards: every wait, at its line, and nothing else; on a virtual GPU, and on a real one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from guarding.running import GPUS, facts

pytestmark = pytest.mark.slow


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest) -> Any:
    return request.param


MESSAGE = "called a synchronizing CUDA operation"
WARNING = re.compile(rf"{MESSAGE} \(Triggered internally at /pytorch/c10/cuda/CUDAFunctions\.cpp:\d+\.\)")


def test_at_least_thirty_operations_do_not_wait_and_none_is_reported(gpu: str) -> None:
    counted = facts("wait_free", gpu)
    assert len(counted) >= 30
    assert {name: waits for name, waits in counted.items() if waits} == {}


def test_of_two_threads_only_the_guarded_one_is_counted(gpu: str) -> None:
    assert facts("threads_and_tasks", gpu)["two_threads"] == {"guarded": 20, "free": "ran"}


def test_of_two_threads_only_the_guarded_one_is_refused(gpu: str) -> None:
    assert facts("threads_and_tasks", gpu)["one_is_refused"] == {"guarded": "value", "free": None}


@pytest.mark.parametrize("what", ["two_tasks", "two_tasks_with_backward"])
def test_of_two_tasks_only_the_guarded_one_is_counted(what: str, gpu: str) -> None:
    assert facts("threads_and_tasks", gpu)[what] == [3, False]


def test_a_backward_pass_is_guarded_in_autograds_threads(gpu: str) -> None:
    found = facts("threads_and_tasks", gpu)
    assert (found["backward"], found["gradient"], found["refused"]) == (["value"], "value", "value")


def test_waits_are_allowed_around_a_backward_pass_and_within_it(gpu: str) -> None:
    found = facts("threads_and_tasks", gpu)
    assert (found["allowed"], found["allowed_in_backward"]) == (None, None)


def test_a_wait_of_torch_in_a_backward_pass_is_at_the_call_of_that(gpu: str) -> None:
    assert facts("threads_and_tasks", gpu)["of_torch"] == [["masked.backward()", "aten::_index_put_impl_"]]


def test_operations_that_are_refused_leave_no_memory_behind(gpu: str) -> None:
    left = facts("refused", gpu)["left"]
    assert len(left) == 12
    changed = {name: outcome for name, outcome in left.items() if outcome != [True, True]}
    # On a real GPU, calls that free memory are made, and refused afterwards: torch makes some of them in destructors.
    assert changed == ({"empty_cache": [True, False]} if gpu == "real" else {})


def test_a_copy_that_is_refused_copies_nothing(gpu: str) -> None:
    found = facts("refused", gpu)
    is_under_way = gpu == "real"  # to pinned memory: what waits is the call after it
    assert (found["values"], found["target"]) == ([is_under_way, False], 1.0)


def test_the_device_works_on_after_a_refusal(gpu: str) -> None:
    assert facts("refused", gpu)["goes_on"]


def test_memory_is_freed_if_the_warning_about_it_is_an_error(gpu: str) -> None:
    found = facts("refused", gpu)
    assert (found["warned"], found["freed"]) == ("malloc", 0)


def test_a_guard_counts_the_waits_that_the_report_finds_at_the_same_lines_by_the_same_rules() -> None:
    found = facts("agrees")
    assert sorted(found["counted"].values()) == [1, 10, 10, 10, 10, 10]  # one is cudaMalloc, of the first step
    assert found["counted"] == found["found"]


def test_a_guard_says_how_long_the_waits_were() -> None:
    found = facts("agrees")
    for place, waited_ns in found["found_ns"].items():
        assert abs(found["lasted_ns"][place] - waited_ns) <= 100  # the rest of the call


def test_unstalls_own_helpers_do_not_wait_in_a_guarded_loop(gpu: str) -> None:
    found = facts("helpers", gpu)
    waits = {name: [kind for kind in kinds if kind] for name, kinds in found["outcomes"].items()}
    assert waits.pop("to_host, read too early") == ["event"] * 5
    assert waits == {"graphed": [], "prefetch": [], "MetricBuffer": [], "to_host": []}


def test_a_guard_does_not_keep_a_call_from_becoming_a_graph(gpu: str) -> None:
    found = facts("helpers", gpu)
    assert (found["refused_capture"], found["replays"]) == (None, 6)


def test_a_guard_may_be_entered_before_torch_is_imported(gpu: str) -> None:
    assert facts("before_torch", gpu) == {"was_there": False, "kinds": ["malloc", "value"]}


def test_the_debug_mode_is_kept(gpu: str) -> None:
    assert facts("sync_debug", gpu)["modes"] == [0, 1, 2, 0]


def test_the_debug_mode_is_called_a_prototype_once(gpu: str) -> None:
    found = facts("sync_debug", gpu)
    assert [len(found["prototype"]), len(found["again"])] == [1, 0]
    assert found["prototype"][0].startswith("Synchronization debug mode is a prototype feature")


@pytest.mark.parametrize("call", ["item", "nonzero", "cpu", "upload", "stream", "torch.Stream"])
def test_the_debug_mode_warns_and_raises_in_torchs_words(call: str, gpu: str) -> None:
    found = facts("sync_debug", gpu)
    (warning,) = found["warns"][call]
    assert WARNING.fullmatch(warning)
    assert found["raises"][call] == ["RuntimeError", MESSAGE]


@pytest.mark.parametrize(
    "call", ["staged upload", "staged download", "event", "device", "malloc", "empty_cache", "add"]
)
def test_the_debug_mode_does_not_see_what_torchs_does_not(call: str, gpu: str) -> None:
    found = facts("sync_debug", gpu)
    assert (found["warns"][call], found["raises"][call]) == ([], None)


def test_nothing_warns_or_raises_once_the_debug_mode_is_off(gpu: str) -> None:
    assert {tuple(map(str, outcome)) for outcome in facts("sync_debug", gpu)["off"].values()} == {("[]", "None")}


def test_an_unknown_debug_mode_is_refused_in_torchs_words(gpu: str) -> None:
    assert facts("sync_debug", gpu)["unknown"] == [
        ["RuntimeError", "invalid value of debug_mode, expected one of 0,1,2"],
        ["RuntimeError", "invalid value of debug_mode, expected one of `default`, `warn`, `error`"],
    ]
