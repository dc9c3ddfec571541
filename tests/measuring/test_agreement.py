"""Two results are one, or how they are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from unstall.measuring.comparing.agreement import agreement, in_float64


def test_equal_results_agree_with_no_distance() -> None:
    found = agreement(np.ones(3), np.ones(3))
    assert (found.agrees, found.ulp, found.relative, found.text) == (True, 0, 0, "the results are equal")


def test_the_distance_is_in_units_in_the_last_place() -> None:
    one = np.array([1.0, 2.0], np.float32)
    other = np.nextafter(np.nextafter(one, np.float32(9)), np.float32(9))
    found = agreement(other, one)
    assert found.agrees
    assert found.ulp == 2
    assert found.relative == pytest.approx(2 * 2**-22 / 2)


def test_bfloat16_has_its_own_last_place() -> None:
    one = torch.tensor([1.0], dtype=torch.bfloat16)
    found = agreement(one + 2**-7, one)
    assert found.ulp == 1
    assert found.agrees


def test_what_is_lost_to_tf32_is_no_agreement_of_float32() -> None:
    one = torch.ones(8)
    found = agreement(one * (1 + 2**-10), one)
    assert not found.agrees
    assert found.text == "result is off by 8,192 ulp, 9.8e-04 relatively, more than an assumed tolerance of 6e-06"


def test_a_tolerance_that_was_assumed_is_called_so() -> None:
    one = np.ones(3, np.float32)
    assert agreement(one * np.float32(1 + 2**-23), one).text.endswith("apart, within an assumed tolerance of 6e-06")
    assert "assumed" not in agreement(one * np.float32(1 + 2**-23), one, ulp=1).text


def test_the_error_against_float64_needs_no_assumed_tolerance() -> None:
    exact = np.linspace(1, 2, 5)
    one = exact.astype(np.float32)
    found = agreement(np.nextafter(one, np.float32(9)), np.nextafter(one, np.float32(0)), exact=exact)
    assert found.agrees
    assert "assumed" not in found.text


def test_a_stated_tolerance_is_the_one_that_counts() -> None:
    one, other = np.ones(3), np.ones(3) * 1.001
    assert agreement(other, one, rel_tolerance=0.01).agrees
    assert not agreement(other, one, rel_tolerance=0.0001).agrees
    assert agreement(np.nextafter(one, 2), one, ulp=1).agrees
    assert not agreement(other, one, ulp=1).agrees


def test_a_small_value_may_be_as_far_off_as_the_largest_allows() -> None:
    assert agreement(np.array([1.0, 1e-15]), np.array([1.0, 0.0])).agrees


def test_a_result_nearer_to_float64_than_the_reference_agrees() -> None:
    exact = np.linspace(1, 2, 5)
    poor = (exact * 1.01).astype(np.float32)
    found = agreement(exact.astype(np.float32), poor, exact=exact)
    assert found.agrees
    assert found.error is not None
    assert found.reference_error == pytest.approx(0.01, rel=1e-4)
    assert not agreement(exact.astype(np.float32), poor).agrees


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (np.ones(2), np.ones(3), "result has shape (2,), the reference's (3,)"),
        ((1, 2), (1, 3), "result[1] is 2, the reference's 3"),
        ({"a": 1}, {"b": 1}, "result['b'] is missing, and the reference's is there"),
        ([1], [1, 1], "result[1] is missing, and the reference's is there"),
        ("yes", "no", "result is 'yes', the reference's 'no'"),
        (np.ones(1), None, "result is an array of float64, the reference's None"),
        (np.array([1, 2]), np.array([1, 3]), "result is not equal to the reference's"),
        (
            np.array([np.nan]),
            np.array([1.0]),
            "result is not finite where the reference's is, or the other way round",
        ),
    ],
)
def test_what_differs_is_named(one: Any, other: Any, text: str) -> None:
    found = agreement(one, other)
    assert (found.agrees, found.text) == (False, text)


def test_the_same_infinities_and_nans_are_equal() -> None:
    values = np.array([np.inf, -np.inf, np.nan])
    assert agreement(values, values.copy()).agrees
    assert not agreement(values, -values).agrees


@dataclass
class Output:
    """As models return."""

    logits: torch.Tensor
    name: str


def test_containers_are_opened() -> None:
    one = Output(torch.ones(2), "a"), {"k": [torch.zeros(1, dtype=torch.complex64), True]}
    assert agreement(one, one).agrees
    other = Output(torch.ones(2), "a"), {"k": [torch.ones(1, dtype=torch.complex64), True]}
    assert agreement(other, one).text.startswith("result[1]['k'][0] is off by ")


def test_objects_that_know_no_equality_are_not_held_against_each_other() -> None:
    assert agreement(object(), object()).agrees


def test_float64_is_what_the_function_makes_of_wider_arguments() -> None:
    exact = in_float64(lambda x, by: x.sum() * by, (np.full(3, 0.1, np.float32),), {"by": 2})
    assert exact.dtype == np.float64
    assert exact == pytest.approx(2 * float(np.full(3, 0.1, np.float32).astype(np.float64).sum()))


def test_there_is_no_float64_of_what_cannot_do_it() -> None:
    weight = torch.ones(2, 2)
    assert in_float64(lambda x: x @ weight, (torch.ones(2, 2),), {}) is None
    assert in_float64(lambda: weight, (), {}) is None


def test_random_numbers_are_those_of_float32() -> None:
    x = torch.ones(1000)
    torch.manual_seed(1)
    exact = in_float64(torch.nn.functional.dropout, (x,), {})
    torch.manual_seed(1)
    assert torch.equal(exact, torch.nn.functional.dropout(x).double())


def test_nan_agrees_with_nan_and_is_counted() -> None:
    values = np.array([1.0, np.nan, np.nan])
    found = agreement(values.copy(), values)
    assert found.agrees
    assert found.text == "the results are equal; NaN in both, 2 of 3 values"


@pytest.mark.parametrize("value", [None, [None, None], object()])
def test_what_says_nothing_is_not_called_equal(value: object) -> None:
    assert agreement(value, value).text == "there are no results that could be compared"


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (["a", "b"], ["a", "c"]),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), np.array(["2020-01-01", "2020-01-02"], "M8[D]")),
        (np.array([1, "x", None], object), np.array([1, "x", 0], object)),
        (np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")]), np.array([(1, 3.0)], [("a", "i4"), ("b", "f4")])),
    ],
)
def test_arrays_of_text_dates_objects_and_records_agree_where_they_are_equal(one: Any, another: Any) -> None:
    assert agreement(np.array(one), np.array(one)).text == "the results are equal"
    assert not agreement(np.array(one), np.array(another)).agrees
