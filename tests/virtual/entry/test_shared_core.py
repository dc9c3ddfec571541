"""What other programs of this machine do is no work of the program's."""

from __future__ import annotations

import os

import pytest
from virtual.entry.running import facts

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux's scheduler"),
]


def test_time_in_which_another_process_has_the_core_is_not_told_as_work() -> None:
    told = facts("shared_core")
    assert told["without core"] > 300_000_000
    assert told["loop"] < 0.02 * told["without core"]


def test_what_the_program_does_on_the_core_is_told_whoever_shares_it() -> None:
    told = facts("shared_core")
    assert told["numpy"] == pytest.approx(told["sorting"], rel=0.25)
