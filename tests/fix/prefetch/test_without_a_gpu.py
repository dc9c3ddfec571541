"""`prefetch` where torch has no GPU: the loader's own batches, and a note that says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import unstall
from unstall.errors import UsageError


class Loader:
    epoch = 0

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Any:
        for number in range(5):
            self.given += 1
            yield torch.tensor([number])

    def __len__(self) -> int:
        return 5

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_batches_come_as_they_are_in_order_and_stats_say_so() -> None:
    loader = unstall.prefetch(Loader())
    assert [int(batch) for batch in loader] == [0, 1, 2, 3, 4]
    assert loader.stats().batches == 5
    assert "plain loop" in loader.stats().text


def test_length_and_attributes_are_the_loaders() -> None:
    inner = Loader()
    loader = unstall.prefetch(inner)
    loader.set_epoch(3)
    assert len(loader) == 5
    assert inner.epoch == loader.epoch == 3


def test_nothing_is_fetched_ahead() -> None:
    inner = Loader()
    next(iter(unstall.prefetch(inner)))
    assert inner.given == 1


def test_a_depth_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="depth is 'auto' or a number of batches from 0 to 64, not -1"):
        unstall.prefetch([], depth=-1)
