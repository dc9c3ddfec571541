"""What events add to a call is found, and taken off: on a device whose times are made up, and so known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring.made_up_device import BEGIN_NS, EVENT_NS, GAP_NS, MadeUpDevice
from profiles import examples

from unstall.measuring.cache import Caching
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.comparing.turns import device_take
from unstall.measuring.device_time.methods import DeviceTime, device_time
from unstall.measuring.measurement import Cache
from unstall.measuring.sampling import Until

OFFSET_NS = EVENT_NS + BEGIN_NS


def timed(device: MadeUpDevice, run: Callable[[], None], cache: Cache = "hot") -> DeviceTime:
    return device_time(
        Caching(FunctionCall(run), cache, device), device, "events", 1e5, Until(rel_ci=0.01, seconds=0.1)
    )


def median(found: DeviceTime) -> float:
    assert found.device is not None
    return found.device.spread.median


def chain(device: MadeUpDevice, ops: int = 20, ns: float = 1_090, gap_ns: float = 1_060) -> Callable[[], None]:
    def run() -> None:
        for _ in range(ops):
            device.op(ns, gap_ns=gap_ns)

    return run


def said(found: DeviceTime, words: str) -> bool:
    return any(words in note for note in found.notes)


def test_gaps_that_are_longer_than_between_short_ops_are_taken_off_as_they_are() -> None:
    device = MadeUpDevice()
    found = timed(device, chain(device))
    assert median(found) == pytest.approx(20 * 1_090, rel=0.03)
    assert said(found, "in CUDA graphs of 6 and 20 calls in a row")


def test_a_long_op_that_hides_some_of_what_is_added_loses_no_more_than_that() -> None:
    device = MadeUpDevice()
    found = timed(device, lambda: device.op(56_000, begin_ns=300))
    assert median(found) == pytest.approx(56_000, rel=0.002)
    assert found.span is not None
    assert found.span.median >= median(found)


def test_of_a_cold_call_as_much_is_taken_off_as_of_a_hot_one() -> None:
    device = MadeUpDevice()
    found = timed(device, lambda: device.op(6_500, cold_ns=4_600), "cold")
    assert median(found) == pytest.approx(11_100, abs=100)


def test_a_long_call_is_not_captured_to_find_out_what_hardly_matters() -> None:
    device = MadeUpDevice()
    found = timed(device, lambda: device.op(600_000))
    assert device.captures == 0
    assert median(found) == pytest.approx(600_000, abs=100)


def test_what_may_not_be_launched_again_is_corrected_by_gaps_of_short_ops_and_says_so() -> None:
    device = MadeUpDevice()
    device.launchable_again = False
    found = timed(device, chain(device))
    assert median(found) == pytest.approx(20 * 1_090 + 19 * (1_060 - GAP_NS), abs=600)
    assert said(found, "less 19 gaps of 7")
    assert said(found, "cannot be had of it")


def test_graphs_in_which_calls_are_slower_than_between_events_are_not_believed() -> None:
    device = MadeUpDevice()
    device.slower_in_graphs = 1.2
    found = timed(device, lambda: device.op(50_000))
    assert median(found) == pytest.approx(50_000, abs=100)
    assert said(found, "52.9 µs between events and 60.0 µs in CUDA graphs of many calls, which gaps")


def test_a_function_that_does_less_where_it_is_captured_is_not_believed_either() -> None:
    device = MadeUpDevice()

    def run() -> None:
        for _ in range(1 if device.capturing else 20):
            device.op(1_500)

    assert said(timed(device, run), "which gaps between ops do not explain")


def test_no_less_is_taken_off_than_is_between_two_events_with_nothing_between() -> None:
    device = MadeUpDevice()
    device.slower_in_graphs = 1.04
    found = timed(device, lambda: device.op(50_000))
    assert median(found) == pytest.approx(50_000 + OFFSET_NS - EVENT_NS, abs=100)


def test_where_nothing_can_be_captured_gaps_are_held_and_that_is_said() -> None:
    device = MadeUpDevice(graphs=False)
    found = timed(device, chain(device, ops=5, gap_ns=GAP_NS))
    assert median(found) > 5 * 1_090 + 4 * GAP_NS
    assert said(found, "holds the gaps")


def test_a_call_without_ops_takes_nothing() -> None:
    device = MadeUpDevice()
    assert median(timed(device, lambda: None)) == 0


@examples(15)
@given(
    ops=st.lists(st.floats(800, 60_000), min_size=1, max_size=12),
    gap_ns=st.floats(600, 1_500),
    begin_ns=st.floats(100, 1_700),
)
def test_a_row_of_any_ops_takes_the_sum_of_their_times(ops: list[float], gap_ns: float, begin_ns: float) -> None:
    device = MadeUpDevice()

    def run() -> None:
        for ns in ops:
            device.op(ns, gap_ns=gap_ns, begin_ns=begin_ns)

    assert abs(median(timed(device, run)) - sum(ops)) < max(0.03 * sum(ops), 300)


def test_candidates_that_take_turns_are_each_corrected_by_their_own() -> None:
    device = MadeUpDevice()
    candidates = [Caching(FunctionCall(chain(device, ops)), "hot", device) for ops in (1, 20)]
    times = np.array(device_take(candidates, device)([0, 1, 1, 0]))
    assert times == pytest.approx(1_090 * np.array([1, 20, 20, 1]), rel=0.05)
