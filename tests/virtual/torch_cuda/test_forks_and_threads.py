"""Forked children, which have no GPU, and threads beside each other."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.torch_cuda.running import facts

pytestmark = pytest.mark.slow
NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"
INVALIDATED = "CUDA error: operation failed due to a previous error during capture"


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("forks_and_threads")


def test_a_forked_child_cannot_use_what_it_inherited_on_the_gpu_but_on_the_host(told: dict[str, Any]) -> None:
    assert told["inherited"] == ["CUDA error: initialization error"] * 5 + ["fine"]


def test_children_forked_while_threads_hold_locks_go_on(told: dict[str, Any]) -> None:
    assert told["busy threads"] == [480.0, ["fine"]]


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_waiting_for_the_captured_stream_spoils_a_capture_in_any_mode(told: dict[str, Any], mode: str) -> None:
    assert told[f"{mode} False"] == [NOT_PERMITTED, INVALIDATED]


@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_another_thread_may_wait_beside_a_capture_that_is_not_global(told: dict[str, Any], mode: str) -> None:
    assert told[f"{mode} True"] == ["fine", "fine"]


def test_no_other_thread_may_wait_beside_a_global_capture(told: dict[str, Any]) -> None:
    assert told["global True"] == [NOT_PERMITTED, INVALIDATED]


def test_random_numbers_of_the_host_stay_as_they_are_whatever_threads_draw(told: dict[str, Any]) -> None:
    assert told["random beside"] is True


def test_sums_have_the_same_bits_on_all_threads(told: dict[str, Any]) -> None:
    assert told["sums of threads"] is True
