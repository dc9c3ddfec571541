"""On the virtual GPU device times are the model's, to the nanosecond."""

from __future__ import annotations

import pytest
from measuring.running import facts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["add", "mm", "chain", "softmax", "sum", "two streams", "copy"])
def test_each_sample_is_the_union_of_the_timeline_ops(name: str) -> None:
    said = facts("model")[name]
    assert said["method"] == "model"
    assert said["bench"] == [said["timeline"]]


@pytest.mark.parametrize("name", ["add", "mm", "chain", "softmax", "two streams"])
def test_a_call_returns_before_it_is_done(name: str) -> None:
    said = facts("model")[name]
    assert 0 < said["host"] < said["wall"]


def test_events_work_there_too_and_say_what_they_hold() -> None:
    said = facts("model")["by events"]
    assert said["method"] == "events"
    assert said["device"] >= facts("model")["softmax"]["timeline"]
    assert any("gaps" in note for note in said["notes"])


def test_what_never_touches_the_device_is_timed_by_the_host() -> None:
    assert facts("model")["plain"] == {"method": "host", "device": True}


def test_events_are_of_the_device_that_works_and_not_of_the_current_one() -> None:
    said = facts("second_device")
    assert said["cuda:1"] == pytest.approx(said["cuda:0"], rel=0.01)
