"""Which guard is active: by thread, by asyncio task, and in autograd's threads for the thread that called backward().

A region is one time that a block is entered. A context variable holds the innermost region. So a task has those of the
task that created it, as long as they are active. Threads that run in a copy of the context, as those of
asyncio.to_thread do, see regions of another thread, which do not count. Leaving a region marks it, since the context
may be another one than that in which it was entered: a generator may be dropped in the middle.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unstall.guarding.guard import Guard


@dataclass(slots=True, eq=False, weakref_slot=True)
class Region:
    """A block in which waits are reported to `guard`, or allowed if that is None. `outer` is around it."""

    guard: Guard | None
    outer: Region | None
    thread: int
    active: bool = True


_innermost: ContextVar[Region | None] = ContextVar("unstall.guarding", default=None)
# The active regions that have a guard, of all threads, by id. One that nobody leaves goes with its thread.
_guarded: dict[int, weakref.ref[Region]] = {}
_switches: list[Callable[[bool], None]] = []
_lock = threading.RLock()  # the garbage collector may leave a region while this thread enters one
_is_on = False


def _no_caller() -> Region | None:
    return None


caller: Callable[[], Region | None] = _no_caller
"""Returns the region for which this thread works, if it is one of autograd's. `backward.py` sets it."""


def innermost() -> Region | None:
    """Returns the innermost active region of this thread and task, or None."""
    region = _own()
    if region is None:
        region = caller()
        while region is not None and not region.active:
            region = region.outer
    return region


def is_guarded() -> bool:
    """Returns whether waits of this thread and task are reported."""
    region = innermost()
    return region is not None and region.guard is not None


def enter(guard: Guard | None) -> Region:
    """Begins a region inside the innermost one."""
    region = Region(guard, _own(), threading.get_ident())
    _innermost.set(region)
    if guard is not None:
        number = id(region)
        _guarded[number] = weakref.ref(region, lambda _: _forget(number))
        if not _is_on:
            _switch()
    return region


def leave(region: Region) -> None:
    """Ends a region, in whatever thread or context. Does nothing if it has ended."""
    region.active = False
    if _innermost.get() is region:
        _innermost.set(_own())
    if region.guard is not None:
        _forget(id(region))


def leave_one_of(entered: list[Region]) -> None:
    """Removes and leaves the innermost of these regions in this context; the last one if none is of this context."""
    region = _innermost.get()
    while region is not None and region not in entered:
        region = region.outer
    if region is None and entered:
        region = entered[-1]
    if region is not None:
        entered.remove(region)
        leave(region)


def add_source(switch: Callable[[bool], None]) -> None:
    """Adds a source of waits. `switch` is called with whether any thread is guarded: at once if so, and whenever that
    changes."""
    with _lock:
        _switches.append(switch)
        if _is_on:
            switch(True)


def has_source() -> bool:
    """Returns whether waits are seen in this process."""
    return bool(_switches)


def _own() -> Region | None:
    """Returns the innermost active region that was entered in this thread and task, or around the task's creation."""
    region = _innermost.get()
    if region is None:
        return None
    thread = threading.get_ident()
    while region is not None and not (region.active and region.thread == thread):
        region = region.outer
    return region


def _forget(number: int) -> None:
    _guarded.pop(number, None)
    if not _guarded:
        _switch()


def _switch() -> None:
    """Tells the sources whether any thread is guarded, if that has changed."""
    global _is_on
    with _lock:
        while _is_on != bool(_guarded):
            _is_on = not _is_on
            for switch in _switches:
                switch(_is_on)
