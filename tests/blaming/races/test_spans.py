"""Which bytes two tensors share."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.blaming.races.spans import Span, span_of

torch = pytest.importorskip("torch")

ROWS, COLUMNS = 7, 6


@st.composite
def views(draw: st.DrawFn) -> tuple[slice, slice]:
    cuts = []
    for length in (ROWS, COLUMNS):
        start = draw(st.integers(0, length - 1))
        cuts.append(slice(start, draw(st.integers(start + 1, length)), draw(st.sampled_from([1, 1, 2]))))
    return cuts[0], cuts[1]


def span_and_elements(base: Any, view: tuple[slice, slice]) -> tuple[Span, set[int]]:
    part = base[view]
    span = span_of(part)
    assert span is not None
    start = (span.start - base.data_ptr()) // base.element_size()
    assert start == part.storage_offset()
    rows, columns = part.stride()
    return span, {start + i * rows + j * columns for i in range(part.shape[0]) for j in range(part.shape[1])}


@given(views(), views())
def test_tensors_that_share_no_element_do_not_touch(first: tuple[slice, slice], second: tuple[slice, slice]) -> None:
    base = torch.zeros(ROWS, COLUMNS)
    (one, ours), (other, theirs) = span_and_elements(base, first), span_and_elements(base, second)

    assert not one.touches(other) or ours & theirs


@given(st.integers(0, ROWS - 1), st.integers(1, ROWS), views())
def test_rows_touch_all_that_share_an_element_with_them(low: int, count: int, view: tuple[slice, slice]) -> None:
    base = torch.zeros(ROWS, COLUMNS)
    rows, ours = span_and_elements(base, (slice(low, min(ROWS, low + count)), slice(0, COLUMNS)))
    span, theirs = span_and_elements(base, view)

    assert rows.touches(span) == span.touches(rows) == bool(ours & theirs)


@given(views(), views())
def test_without_leaves_all_that_the_other_has_not(first: tuple[slice, slice], second: tuple[slice, slice]) -> None:
    base = torch.zeros(ROWS, COLUMNS)
    (one, ours), (other, theirs) = span_and_elements(base, first), span_and_elements(base, second)
    size = base.element_size()
    left = {
        number
        for part in one.without(other)
        for number in range((part.start - base.data_ptr()) // size, (part.end - base.data_ptr()) // size)
    }

    assert ours - theirs <= left


def test_columns_beside_each_other_do_not_touch() -> None:
    base = torch.zeros(ROWS, COLUMNS)
    left, right = span_of(base[:, :3]), span_of(base[:, 3:])

    assert left
    assert right
    assert not left.touches(right)


def test_a_tensor_without_elements_has_no_bytes() -> None:
    assert span_of(torch.zeros(0, 3)) is None
