"""Settings of the whole process that reading a trace changes for a while. Several threads may read at the same time:
the first changes a setting, and the last restores it."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

_TURN_S = 0.001


def _shared(change: Callable[[], Callable[[], object]]) -> Callable[[], AbstractContextManager[None]]:
    """Returns a function whose context managers share one change. `change` makes it and returns what undoes it."""
    lock = threading.RLock()  # a reader that is garbage may be closed, and restore, at any allocation
    undos, users = list[Callable[[], object]](), 0

    @contextmanager
    def changed() -> Iterator[None]:
        nonlocal users
        with lock:
            if not users:
                undos.append(change())
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if not users:
                    undos.pop()()

    return changed


def _take_short_turns() -> Callable[[], object]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _TURN_S))
    return lambda: sys.setswitchinterval(usual)


def _stop_collecting() -> Callable[[], object]:
    was_on = gc.isenabled()
    gc.disable()
    return gc.enable if was_on else lambda: None


short_turns = _shared(_take_short_turns)
"""Returns a context manager. Within its block, Python's threads take the GIL in shorter turns
(`sys.setswitchinterval`), so that a thread that unpacks a file gets the GIL sooner. It needs the GIL only briefly: with
turns of 5 ms, Python's default, it would wait for longer than it works."""

collector_off = _shared(_stop_collecting)
"""Returns a context manager that turns Python's garbage collector off within its block. Reading a trace creates no
reference cycles, and looking for cycles among a million events is slow."""
