"""What helpers print fits the terminal, and says all of it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unstall
from unstall.fix.wrapped import wrapped

WORDS = st.text("ab-µ;.,", min_size=1, max_size=30)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=30).map(" ".join), min_size=1, max_size=4)


@given(LINES, st.integers(40, 120))
def test_lines_are_no_wider_and_no_word_is_lost(lines: list[str], width: int) -> None:
    text = "\n  ".join(lines)
    printed = wrapped(text, width)
    assert printed.split() == text.split()
    assert all(len(line) <= width for line in printed.split("\n"))


def test_what_goes_on_is_further_in_than_what_it_belongs_to() -> None:
    first, on, second, on_of_second = wrapped("\n".join(["word " * 12, "  " + "word " * 12]), 50).split("\n")
    assert [len(line) - len(line.lstrip()) for line in (first, on, second, on_of_second)] == [0, 4, 2, 6]


def test_a_path_that_is_wider_than_the_terminal_stays_whole() -> None:
    assert "/" + "a" * 200 in wrapped("see /" + "a" * 200 + " there", 80)


@pytest.mark.parametrize("columns", ["60", "100"])
def test_stats_of_helpers_are_printed_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    mapped = unstall.stream_map(torch.relu, [torch.ones(2)] * 3)
    list(mapped)
    metrics = unstall.MetricBuffer(print)
    future = unstall.to_host(torch.ones(3))
    future.result()
    warm = unstall.warm_up(torch.relu, torch.ones(2), torch.ones(3))
    for printed in (mapped, mapped.stats(), metrics, metrics.stats(), future, future.stats(), warm):
        assert max(map(len, str(printed).split("\n"))) <= int(columns)
    assert len(mapped.stats().text) > 100
