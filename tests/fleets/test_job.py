"""How long a step of a job takes once it goes on as replayed."""

from __future__ import annotations

import numpy as np
import pytest

from unstall.fleets.job import Times


def times(ends: list[list[int]], host_work: list[float]) -> Times:
    return Times(np.array(ends), np.zeros_like(ends), np.array(host_work), uncoupled=0)


def test_a_device_that_catches_up_goes_on_at_the_pace_of_its_host() -> None:
    # The device ends the first step late, and has caught up in the last.
    made = times([[300, 350, 420, 520]], [100])
    assert made.window_ns == pytest.approx(220 / 3)
    assert made.step_ns == 100


def test_a_device_that_is_still_late_goes_on_at_the_pace_of_its_host_too() -> None:
    assert times([[1000, 1020, 1040, 1060]], [100]).step_ns == 100


def test_a_host_that_is_far_ahead_does_not_matter() -> None:
    made = times([[300, 400, 500, 600], [300, 400, 500, 600]], [1, 80])
    assert made.step_ns == made.window_ns == 100


def test_a_single_step_counts_as_it_is() -> None:
    assert times([[70]], [60]).step_ns == 70
