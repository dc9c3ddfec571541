"""Which time a comparison is of, and how that is said."""

from __future__ import annotations

import pytest
import torch

import unstall
from unstall.measuring.comparing.which_time import Probe, launch_bound
from unstall.measuring.wording import names_of, percent


def test_nothing_is_said_of_functions_that_the_device_bounds() -> None:
    assert launch_bound([Probe("a", 100.0, 129.0), Probe("b", 0.0, 50.0)]) == ""


def test_one_that_the_host_bounds_is_named_with_its_times() -> None:
    said = launch_bound([Probe("a", 7_000.0, 25_900.0), Probe("b", 9_000.0, 9_100.0)])
    assert said == ("a is launch-bound: the device works for 7.00 µs of the 25.9 µs that a call takes back to back")


def test_several_are_one_sentence_and_the_worst_input_of_each_counts() -> None:
    probes = [Probe("a", 10.0, 100.0), Probe("a", 50.0, 100.0), Probe("b", 40.0, 100.0)]
    assert launch_bound(probes) == (
        "a and b are launch-bound: the device works for 10 to 40 % of the time that calls take back to back"
    )


def test_on_the_cpu_it_is_the_time_of_a_call_and_needs_no_reason() -> None:
    x = torch.ones(4)
    found = unstall.compare({"a": lambda: x + 1, "b": lambda: x + 1}, max_seconds=0.02)
    assert (found.by, found.because) == ("wall", "")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (list("abcde"), "a, b, c and 2 more"),
    ],
)
def test_names_are_told_as_people_do(names: list[str], text: str) -> None:
    assert names_of(names) == text


@pytest.mark.parametrize(("share", "text"), [(0.0024, "0.24 %"), (0.5, "50 %"), (9.5, "950 %"), (12.34, "1,200 %")])
def test_percentages_have_two_digits_and_no_powers(share: float, text: str) -> None:
    assert percent(share) == text
