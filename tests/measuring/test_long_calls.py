"""Functions that take as long as `max_seconds`, or longer: each figure is of as few calls as it can be of."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np
import pytest
from measuring.made_up_device import MadeUpDevice
from measuring.running import facts

import unstall
from unstall.measuring.benchmark import _First, _Run
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.measurement import Cache, Measurement

FEW = 4


def _sleeping(seconds: float) -> tuple[Callable[[], None], list[float]]:
    """What sleeps so long, and how long each call of it took."""
    calls: list[float] = []

    def sleep() -> None:
        began = time.monotonic()
        time.sleep(seconds)
        calls.append(time.monotonic() - began)

    return sleep, calls


def _on_made_up(run: Callable[[], None], device: MadeUpDevice, seconds: float, cache: Cache = "hot") -> Measurement:
    began = time.monotonic()
    run()
    took = time.monotonic() - began
    first = _First(round(1e9 * took), round(1e9 * took), took)
    return _Run("made up", FunctionCall(run), device, cache, "auto", 0.01, seconds, first, False, {}).measured(
        None, None
    )


@pytest.mark.parametrize(("each", "seconds"), [(0.05, 0.02), (0.05, 0.1), (0.05, 0.4), (0.02, 0.3)])
def test_max_seconds_is_kept_but_for_a_few_calls(each: float, seconds: float) -> None:
    sleep, calls = _sleeping(each)
    unstall.bench(sleep, max_seconds=seconds)
    assert sum(calls) <= seconds + FEW * max(calls)


def test_one_that_takes_longer_than_there_is_time_is_called_twice() -> None:
    sleep, calls = _sleeping(0.05)
    measured = unstall.bench(sleep, max_seconds=0.02)
    assert len(calls) == 2
    assert measured.wall.median == measured.host.median == pytest.approx(1e9 * calls[1], rel=0.2)


def test_of_one_call_nothing_is_said_of_others() -> None:
    sleep, _ = _sleeping(0.03)
    measured = unstall.bench(sleep, max_seconds=0.01)
    (verdict,) = (each for each in measured.verdicts if each.kind == "not converged")
    assert verdict.text == "time is up after one sample, and how much others differ is not known: give it more time"
    assert verdict.serious
    assert "±" not in str(measured)
    assert str(measured).count("ime is up") == 1


def test_few_calls_are_a_serious_verdict_if_they_are_not_alike() -> None:
    sleep, _ = _sleeping(0.05)
    measured = unstall.bench(sleep, max_seconds=0.18)
    assert 2 <= measured.wall.n <= 5
    (verdict,) = (each for each in measured.verdicts if each.kind == "not converged")
    assert f"after {measured.wall.n} samples, which are " in verdict.text
    wall = measured.wall  # on a busy machine, even sleeps differ
    assert verdict.serious == (wall.high - wall.low > 0.1 * wall.median)


@pytest.mark.parametrize("cache", ["hot", "cold"])
@pytest.mark.parametrize("seconds", [0.02, 0.3])
def test_max_seconds_is_kept_on_a_device_too(cache: Cache, seconds: float) -> None:
    device = MadeUpDevice()
    sleep, calls = _sleeping(0.03)

    def run() -> None:
        device.op(1e6)
        if not device.capturing:
            sleep()

    measured = _on_made_up(run, device, seconds, cache)
    assert sum(calls) <= seconds + FEW * max(calls)
    assert measured.device is not None
    assert measured.device.median == pytest.approx(1e6, rel=0.01)
    assert measured.wall.median >= 0.03e9


def test_where_there_is_no_time_for_calls_back_to_back_that_is_said() -> None:
    device = MadeUpDevice()
    sleep, _ = _sleeping(0.02)

    def run() -> None:
        device.op(1e6)
        sleep()

    measured = _on_made_up(run, device, 0.01)
    assert measured.throughput is None
    assert any("no time for calls back to back" in note for note in measured.notes)


def test_what_is_slow_only_at_first_is_measured_as_any_other() -> None:
    calls: list[int] = []

    def slow_at_first() -> None:
        calls.append(1)
        time.sleep(0.2 if len(calls) == 1 else 0.0005)

    measured = unstall.bench(slow_at_first, max_seconds=0.2)
    assert measured.wall.n >= 10
    assert measured.has("first call differs")


@pytest.mark.parametrize("first", [[0.05, 0.2], [0.2, 0.05], [0.0, 0.2]])
def test_what_is_slow_at_first_and_at_its_second_call_is_measured_by_those_after(first: list[float]) -> None:
    """As what is loaded by one and captured or compiled by the other."""
    slow = iter(first)
    measured = unstall.bench(lambda: time.sleep(next(slow, 0.0005)), max_seconds=0.2)
    assert measured.wall.n >= 3  # some 100, if the machine is not busy
    assert measured.wall.median < 0.05e9


def test_a_comparison_of_what_is_slow_at_its_second_call_has_as_many_rounds_as_any() -> None:
    slow = iter([0.0, 0.2])
    functions = {"captures": lambda: time.sleep(next(slow, 0.0005)), "other": lambda: time.sleep(0.0005)}
    assert unstall.compare(functions, max_seconds=0.3).rounds >= 10


@pytest.mark.parametrize("seconds", [0.05, 0.5])
def test_a_comparison_keeps_max_seconds_but_for_a_few_calls_of_each(seconds: float) -> None:
    (one, took), (other, too) = _sleeping(0.03), _sleeping(0.1)
    found = unstall.compare({"one": one, "other": other}, max_seconds=seconds)
    assert sum(took) + sum(too) <= seconds + FEW * (max(took) + max(too))
    assert found.answer == "SLOW"


def test_results_of_a_comparison_are_those_of_the_second_call_on_copies() -> None:
    calls: list[str] = []

    def counted(name: str, values: np.ndarray) -> np.ndarray:
        calls.append(name)
        values += calls.count(name) == 2
        time.sleep(0.02)
        return values

    values = np.zeros(3)
    functions = {name: functools.partial(counted, name) for name in ("one", "other")}
    found = unstall.compare(functions, values, max_seconds=0.01)
    assert found.agrees
    assert values.tolist() == [0.0] * 3


@pytest.mark.slow
def test_on_the_virtual_gpu_how_many_samples_there_are_goes_by_whether_there_is_time_for_all() -> None:
    said = facts("long_calls")
    assert said["enough"]["n"] == {"device": 10, "host": 10, "wall": 10, "throughput": 2}
    assert said["little"]["n"] == {"device": 2, "host": 2, "wall": 2, "throughput": 2}
    assert said["none"]["n"] == {"device": 2, "host": 2, "wall": 2, "throughput": None}
    assert said["little"]["calls"] <= 20
    assert said["little"]["converged"]


@pytest.mark.slow
def test_on_the_virtual_gpu_few_samples_tell_what_many_do() -> None:
    many, few = (facts("long_calls")[name]["ns"] for name in ("enough", "little"))
    assert few == {**many, "throughput": pytest.approx(many["throughput"], rel=0.002)}


@pytest.mark.slow
def test_on_the_virtual_gpu_nothing_is_said_of_what_its_model_does_not_know() -> None:
    said = facts("long_calls")["rated"]
    assert said["of"] == "as the model has it, of a large copy"
    assert not any(word in said["text"] for word in ("L2", "power", "measured here"))
