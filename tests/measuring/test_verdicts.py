"""Verdicts, each of evidence that says one thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from unstall.measuring.calls.inspection import Inspection
from unstall.measuring.device_time.methods import DeviceTime
from unstall.measuring.gpu_clock import ClockReading
from unstall.measuring.sampling import Sampled
from unstall.measuring.statistics import Spread
from unstall.measuring.verdicts import verdicts_of
from unstall.measuring.verdicts.evidence import Evidence

LOOK = Inspection(
    inputs=(),
    changed=(),
    written=(),
    zeros=(),
    subnormal=(),
    later=None,
    result_bytes=0,
    result_none=False,
    gradients=False,
    extra_bytes=0,
    from_driver=0,
)


def around(median: float, count: int = 100) -> Spread:
    return Spread.of(median * np.random.default_rng(3).normal(1, 0.001, count))


def evidence(*, device: float | Spread | None = 50_000.0, method: Any = "cupti", **changes: Any) -> Evidence:
    spread = around(device) if isinstance(device, float) else device
    time = None if spread is None else DeviceTime(method, Sampled(spread, "", True), spread, None, floor_ns=1_000.0)
    whole = Evidence(
        asynchronous=spread is not None,
        framework="torch",
        has_current_stream=True,
        cache="cold",
        cache_bytes=50 << 20,
        host=around(48_000.0),
        wall=around(60_000.0),
        throughput=around(50_000.0),
        device=time,
        inspection=LOOK,
        converged=True,
        stopped="the median is known to 1 %",
        first_call_ns=70_000,
        compiled_first=False,
        compiled_later=False,
        empty_call_ns=30.0,
        page_faults=0.0,
        before=None,
        after=None,
        sync_lines=(),
        gpu_is_there=True,
    )
    return replace(whole, **changes)


def kinds(found: Evidence, *, serious: bool | None = None) -> list[str]:
    return [each.kind for each in verdicts_of(found) if serious is None or each.serious == serious]


def test_nothing_to_say_of_what_is_sound() -> None:
    assert kinds(evidence()) == []


def test_the_host_or_the_device_bounds_what_takes_clearly_longer() -> None:
    assert kinds(evidence(device=900.0, host=around(11_000.0))) == ["launch-bound"]
    assert kinds(evidence(device=90_000.0, host=around(11_000.0))) == ["device-bound"]


@pytest.mark.parametrize("reason", ["heat", "the power cap"])
def test_a_clock_that_is_held_down_is_throttled(reason: str) -> None:
    found = evidence(before=ClockReading(1980, 1980, ()), after=ClockReading(1700, 1980, (reason,)))
    assert kinds(found, serious=True) == ["throttled"]
    assert f"{reason}: 1980 MHz before, 1700 after" in verdicts_of(found)[0].text


def test_what_held_the_clock_down_before_is_no_verdict() -> None:
    assert (
        kinds(evidence(before=ClockReading(1700, 1980, ("the power cap",)), after=ClockReading(1980, 1980, ()))) == []
    )


def test_random_clocks_make_calls_that_are_not_alike() -> None:
    wild = Spread.of(50_000 * np.random.default_rng(1).uniform(0.6, 1.6, 400))
    assert kinds(evidence(device=wild), serious=True) == ["not converged"]


def test_a_clock_that_falls_while_samples_grow_longer_is_named() -> None:
    growing = Spread.of(np.linspace(45_000, 55_000, 90))
    found = evidence(device=growing, before=ClockReading(1980, 1980, ()), after=ClockReading(1500, 1980, ()))
    assert set(kinds(found, serious=True)) == {"throttled", "not converged"}
    assert any("% longer than the first" in each.text for each in verdicts_of(found))


def test_a_first_call_that_compiled_is_kept_apart() -> None:
    found = evidence(first_call_ns=3_000_000_000, compiled_first=True)
    assert kinds(found) == ["first call differs"]
    assert "since it compiled" in verdicts_of(found)[0].text


def test_compiling_while_calls_are_timed_is_serious() -> None:
    assert kinds(evidence(compiled_later=True), serious=True) == ["first call differs"]


def test_events_say_what_they_cannot_resolve() -> None:
    short = evidence(device=1_200.0, method="events", host=around(1_200.0))
    assert kinds(short, serious=True) == ["too short to resolve"]
    many = evidence(device=46_000.0, method="events", host=around(200_000.0))
    assert "too short to resolve" in kinds(many, serious=True)
    assert kinds(evidence(device=46_000.0, method="cupti", host=around(200_000.0))) == ["launch-bound"]


def test_a_function_that_takes_as_long_as_none_is_too_short() -> None:
    assert kinds(evidence(device=None, wall=around(35.0)), serious=True) == ["too short to resolve"]


def test_fresh_pages_for_each_call_are_allocation() -> None:
    assert kinds(evidence(device=None, page_faults=1000.0)) == ["allocates"]


def test_what_cannot_be_waited_for_in_jax_is_serious() -> None:
    from unstall.measuring.adapters import Array

    inspection = replace(LOOK, inputs=(Array("x", np.zeros(1), "cuda:0", 4),), result_none=True)
    assert kinds(evidence(framework="JAX", inspection=inspection), serious=True) == ["result unused"]
    assert kinds(evidence(inspection=inspection), serious=False) == ["result unused"]


def test_serious_ones_come_first() -> None:
    wide = Spread.of(900.0 * np.random.default_rng(1).lognormal(0, 1, 20))
    found = evidence(device=wide, host=around(11_000.0), converged=False, stopped="time is up")
    assert kinds(found) == ["not converged", "launch-bound"]


def test_a_model_that_knows_of_no_caches_has_none_that_is_warm() -> None:
    inspection = replace(LOOK, result_bytes=1 << 20)
    assert "warm L2" in kinds(evidence(cache="hot", inspection=inspection))
    assert "warm L2" not in kinds(evidence(cache="hot", inspection=inspection, virtual=True))


def test_the_times_of_a_model_do_not_depend_on_values() -> None:
    inspection = replace(LOOK, zeros=("x",), subnormal=("y",), nan=("z",))
    assert {"zeros", "denormals", "NaN"} <= set(kinds(evidence(inspection=inspection)))
    (nan,) = verdicts_of(evidence(inspection=inspection, virtual=True))
    assert nan.kind == "NaN"
    assert "power" not in nan.text


def test_a_single_sample_is_a_serious_verdict_and_few_that_are_alike_are_none() -> None:
    one, few, wide = Spread.of([5e9]), Spread.of([5e9, 5.01e9]), Spread.of([5e9, 6e9])
    for spread, serious in ((one, True), (few, False), (wide, True)):
        found = evidence(device=None, wall=spread, host=spread, throughput=None, converged=False, gpu_is_there=False)
        assert kinds(found, serious=serious) == ["not converged"]
