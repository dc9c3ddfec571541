"""Where items begin and end, against walking through the text character by character."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from unstall.read.list_items import Items

TEXTS = st.text(st.sampled_from('ab{}[]", \\\n'), max_size=8)
VALUES = st.recursive(
    st.one_of(st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
LISTS = st.lists(VALUES, max_size=5).map(json.dumps)


def walked(text: str) -> tuple[list[int], list[int], int]:
    """(starts, ends, close) of the list that `text` is the inside of."""
    starts, ends = [], []
    depth, in_text, escaped = 0, False, False
    for at, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"':
            in_text = not in_text
        elif not in_text and char in "[{":
            starts += [at] if depth == 0 else []
            depth += 1
        elif not in_text and char in "]}" and depth:
            depth -= 1
            ends += [at + 1] if depth == 0 else []
        elif not in_text and char == "]":
            return starts, ends, at
    return starts, ends, -1


@given(LISTS, st.lists(st.integers(1, 9)))
def test_lists_fed_in_stretches_of_any_length(text: str, lengths: list[int]) -> None:
    found = Items()
    rest = inside = text.encode()[1:]
    for length in lengths:
        found.feed(rest[:length])
        rest = rest[length:]
    found.feed(rest)
    assert (found.starts, found.ends, found.close) == walked(inside.decode())


@given(st.text(st.sampled_from('{}[]"\\a,'), max_size=40), st.integers(0, 40))
def test_any_text_at_all(text: str, cut: int) -> None:
    found = Items(text[:cut].encode())
    found.feed(text[cut:].encode())
    assert (found.starts, found.ends, found.close) == walked(text)


def test_an_item_longer_than_a_stretch_is_one_item() -> None:
    item = b'{"a": "' + b"\\" * (3 << 20) + b'"}'
    found = Items(b"[" + item + b", " + item, 1)
    assert found.whole == [(1, 1 + len(item)), (3 + len(item), 3 + 2 * len(item))]
    assert found.between
