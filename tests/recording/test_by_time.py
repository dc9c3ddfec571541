"""A window by time: when it begins and ends, and when it does not."""

from __future__ import annotations

import threading
import time

from unstall.recording.by_time import ByTime

_LONG_S = 60.0


class _Asked:
    """A session that is asked to begin and to end."""

    def __init__(self, after_s: float, for_s: float, *, wanted: bool = True, begins: bool = True) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self.may_begin = True
        self._begins = begins
        self.by_time = ByTime(
            after_s,
            for_s,
            passed_s=lambda: 5.0,
            is_wanted=lambda: wanted,
            may_begin=lambda: self.may_begin,
            begin=self._begin,
            end=self.ended.set,
        )

    def _begin(self) -> bool:
        self.begun.set()
        return self._begins


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "unstall"]


def test_it_begins_and_ends_when_its_seconds_are_over() -> None:
    asked = _Asked(5.1, 0.2)
    start = time.monotonic()
    asked.by_time.start()
    assert asked.begun.wait(10)
    begun = time.monotonic()
    assert asked.ended.wait(10)
    assert begun - start > 0.09
    assert time.monotonic() - begun > 0.15


def test_what_is_over_early_ends_early() -> None:
    asked = _Asked(0, _LONG_S)
    asked.by_time.start()
    assert asked.begun.wait(10)
    asked.by_time.stop()
    assert asked.ended.wait(10)


def test_it_begins_once_it_may() -> None:
    asked = _Asked(0, 0)
    asked.may_begin = False
    asked.by_time.start()
    assert not asked.begun.wait(0.1)
    asked.may_begin = True
    assert asked.begun.wait(10)


def test_what_is_not_wanted_has_no_thread() -> None:
    before = _threads()
    _Asked(_LONG_S, _LONG_S, wanted=False).by_time.start()
    assert _threads() == before


def test_what_did_not_begin_does_not_end() -> None:
    asked = _Asked(0, 0, begins=False)
    asked.by_time.start()
    assert asked.begun.wait(10)
    for thread in _threads():
        thread.join(10)
    assert not asked.ended.is_set()
