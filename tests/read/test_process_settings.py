"""What reading a trace changes in the whole process is as before once the last reader has ended."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest

from unstall.read.process_settings import collector_off, short_turns


@pytest.mark.parametrize(("setting", "seen"), [(short_turns, sys.getswitchinterval), (collector_off, gc.isenabled)])
def test_readers_that_overlap_leave_a_setting_as_it_was(setting: Callable, seen: Callable[[], float]) -> None:  # type: ignore[type-arg]
    before, one, other = seen(), setting(), setting()
    one.__enter__()
    changed = seen()
    other.__enter__()
    one.__exit__(None, None, None)
    assert seen() == changed != before
    other.__exit__(None, None, None)
    assert seen() == before
