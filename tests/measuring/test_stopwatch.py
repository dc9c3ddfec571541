"""`Stopwatch` waits for what the block began, and says so."""

from __future__ import annotations

import re
import time

import pytest

from unstall import Stopwatch


def test_it_prints_one_line_as_d2l_does(capsys: pytest.CaptureFixture[str]) -> None:
    with Stopwatch("ten products"):
        pass
    assert re.fullmatch(r"ten products: \d\.\d{4} sec.*\n", capsys.readouterr().out)


def test_its_time_is_the_blocks() -> None:
    with Stopwatch(show=False) as watch:
        time.sleep(0.02)
    assert 0.02 <= watch.seconds < 1
    assert watch.waited_seconds < watch.seconds


def test_a_block_that_fails_fails_as_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), Stopwatch("never"):
        1 / 0  # noqa: B018
    assert capsys.readouterr().out == ""
