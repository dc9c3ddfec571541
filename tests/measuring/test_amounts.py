"""Amounts of work as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.errors import UsageError
from unstall.measuring.amounts import parse_bytes, parse_flops, parse_share


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4096", 4096),
        ("64MiB", 64 << 20),
        (" 1.5 GB ", 1_500_000_000),
        ("2e9", 2_000_000_000),
        ("3KB", 3000),
        ("3kiB", 3 << 10),
        ("512B", 512),
    ],
)
def test_bytes_have_decimal_and_binary_units(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(("text", "count"), [("2e9", 2 * 10**9), ("2G", 2 * 10**9), ("1.5 TFLOP", 1_500 * 10**9)])
def test_operations_have_decimal_prefixes(text: str, count: int) -> None:
    assert parse_flops(text) == count


@pytest.mark.parametrize("text", ["", "64M", "-1", "0", "1e400", "nan", "MiB", "1 XiB", "0.1B"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["", "2GiB", "many", "0", "1e999"])
def test_what_is_no_number_of_operations_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no number of operations"):
        parse_flops(text)


@given(st.integers(1, 2**60))
def test_whole_numbers_are_themselves_as_far_as_floats_go(count: int) -> None:
    assert parse_bytes(str(count)) == round(float(count)) == parse_flops(str(count))


def test_shares_are_percentages_or_fractions() -> None:
    assert parse_share("1.5%") == parse_share("0.015") == 0.015
    with pytest.raises(UsageError, match="write a percentage or a fraction"):
        parse_share("5")
