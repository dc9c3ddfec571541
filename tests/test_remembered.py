"""What rules ask of a run again and again is computed once, and forgotten with the run."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from unstall.timeline.columns import I64
from unstall.timeline.remembered import remembered


class Run:
    pass


class Asked:
    """A question that counts how often it was asked."""

    def __init__(self) -> None:
        self.times = 0
        self.answer = remembered(self._answer)

    def _answer(self, run: Run, start: int = 0) -> I64:
        self.times += 1
        return np.arange(start, start + 3)


def test_an_answer_is_computed_once_for_a_run_and_its_arguments() -> None:
    asked, runs = Asked(), [Run(), Run()]
    for _ in range(3):
        assert asked.answer(runs[0]).tolist() == asked.answer(runs[1]).tolist() == [0, 1, 2]
        assert asked.answer(runs[0], 5).tolist() == [5, 6, 7]
    assert asked.times == 3


def test_an_argument_by_name_is_another_question() -> None:
    asked, run = Asked(), Run()
    assert asked.answer(run).tolist() == [0, 1, 2]
    assert asked.answer(run, start=5).tolist() == [5, 6, 7]


def test_nobody_can_change_what_others_get() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Asked().answer(Run())[0] = 9


def test_a_run_that_is_no_longer_in_use_is_freed() -> None:
    asked, run = Asked(), Run()
    asked.answer(run)
    gone = weakref.ref(run)
    del run
    gc.collect()
    assert gone() is None
