"""Figures: three digits, honest ends, and times and shares read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.errors import UsageError
from unstall.figures import duration, in_one_unit, parse_duration, parse_share, share, size


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0"),
        (640, "640 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (5_543_210, "5.54 ms"),
        (9_994_999, "9.99 ms"),
        (9_999_000, "10.0 ms"),
        (38_449_000, "38.4 ms"),
        (99_960_000, "100 ms"),
        (59_940_000_000, "59.9 s"),
        (59_960_000_000, "1 min 0 s"),
        (3_725_000_000_000, "62 min 5 s"),
        (-5_543_210, "-5.54 ms"),
    ],
)
def test_a_duration_has_three_digits_and_the_unit_that_fits(ns: int, text: str) -> None:
    assert duration(ns) == text


@given(st.integers(1, 59 * 10**9))
def test_a_duration_reads_back_within_half_a_percent(ns: int) -> None:
    assert parse_duration(duration(ns)) == pytest.approx(ns, rel=0.005)


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 3, "33.3 %"),
        (1, 10_000, "<0.1 %"),
        (9_999, 10_000, ">99.9 %"),
        (5, 0, "0 %"),
        (0, 0, "0 %"),
    ],
)
def test_a_share_is_0_or_100_only_when_that_is_exact(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.00 KiB"), (38_535_168, "36.8 MiB"), (2**40 - 1, "1.00 TiB"),
     (2**70, "1048576 PiB"), (-2048, "-2.00 KiB")],
)  # fmt: skip
def test_a_size_is_in_binary_units(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("text", "ns"), [("1ms", 10**6), ("1.5 ms", 1_500_000), ("500us", 500_000), (".5µs", 500), ("2s", 2 * 10**9)]
)
def test_a_time_is_read_with_its_unit(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "5", "ms", "1 fortnight", "-1ms", "1e3ms", "nan ms"])
def test_a_time_without_a_known_unit_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "fraction"), [("20%", 0.2), ("20", 0.2), ("0.5 %", 0.005), ("100%", 1.0), ("0", 0)])
def test_a_share_is_read_as_percent(text: str, fraction: float) -> None:
    assert parse_share(text) == pytest.approx(fraction)


@pytest.mark.parametrize("text", ["0.2", "1", ".05"])
def test_what_may_be_a_fraction_is_no_percentage_without_its_sign(text: str) -> None:
    with pytest.raises(UsageError, match="write a percentage and its sign, such as 20%"):
        parse_share(text)
    assert parse_share(f"{text}%") == float(text) / 100


@pytest.mark.parametrize("text", ["", "%", "101%", "-1%", "half"])
def test_a_share_outside_0_to_100_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a percentage"):
        parse_share(text)


@pytest.mark.parametrize(
    ("times_ns", "texts"),
    [
        ((653_000, 697_000), ["0.653 ms", "0.697 ms"]),
        ((18_000, 12_400_000), ["0.018 ms", "12.4 ms"]),
        ((18_000, 88_500), ["18.0 µs", "88.5 µs"]),
        ((900, 697_000), ["900 ns", "697 µs"]),
    ],
)
def test_times_to_be_compared_have_one_unit_in_which_both_can_be_read(times_ns: list[int], texts: list[str]) -> None:
    assert in_one_unit(*times_ns) == texts
