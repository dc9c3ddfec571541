"""Which guard is active: by thread, by asyncio task, and in autograd's threads for the thread that called backward().

A region is one time that a block is entered. A context variable holds the innermost region. So a task has those of the
task that created it, as long as they are active. Threads that run in a copy of the context, as those of
asyncio.to_thread do, see regions of another thread, which do not count. Leaving a region marks it, since the context
may be another one than that in which it was entered: a generator may be dropped in the middle.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from unstall.guarding.guard import Guard


class Region:
    """A block in which waits are reported to `guard`, or allowed if that is None. `outer` is around it."""

    __slots__ = ("__weakref__", "active", "guard", "in_all_contexts", "outer", "siblings", "task")

    def __init__(
        self, guard: Guard | None, outer: Region | None, siblings: _Entered, task: asyncio.Task[object] | None
    ) -> None:
        self.guard = guard
        self.outer = outer
        self.siblings = siblings  # those of the thread in which it was entered
        self.task = task
        self.active = True
        self.in_all_contexts = False


class _Entered(list["weakref.ref[Region]"]):
    """The active regions that were entered in a thread, in order. The context and the block own them."""

    __slots__ = ("__weakref__",)


class Source(Protocol):
    """Something that sees waits: see `state.py`."""

    def switch(self, on: bool) -> None:
        """Called with whether any thread is guarded, when that changes. Raises UsageError if it cannot see waits."""

    def settle(self) -> None:
        """Called when a guard is left: reports the waits that are over."""


class _Here(threading.local):
    """Of each thread: the regions that nobody leaves go when it does."""

    def __init__(self) -> None:
        self.entered = _Entered()
        _threads[threading.get_ident()] = self.entered


_innermost: ContextVar[Region | None] = ContextVar("unstall.guarding", default=None)
_threads: weakref.WeakValueDictionary[int, _Entered] = weakref.WeakValueDictionary()
_here = _Here()
_guarded: dict[int, weakref.ref[Region]] = {}  # the active regions of all threads that have a guard, by id
_sources: list[Source] = []
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
    return region or _of_all_contexts()


def hold_in_all_contexts() -> None:
    """Makes the innermost region hold in each context of its thread that has none, as tasks made before it have not."""
    region = _own()
    if region is not None:
        region.in_all_contexts = True


def _of_all_contexts() -> Region | None:
    return next((region for region in _innermost_first(_here.entered) if region.in_all_contexts), None)


def innermost_of(thread: int) -> Region | None:
    """Returns the innermost active region of another thread, or None.

    A context can be read only in its own thread. So a task does not have those of the task that created it.
    """
    entered = _threads.get(thread)
    if entered is None:
        return None
    return next((region for region in _innermost_first(entered) if _is_current(region.task)), None)


def _innermost_first(entered: _Entered) -> Iterator[Region]:
    for known in reversed(entered.copy()):
        region = known()
        if region is not None:
            yield region


def is_guarded() -> bool:
    """Returns whether waits of this thread and task are reported."""
    region = innermost()
    return region is not None and region.guard is not None


def enter(guard: Guard | None) -> Region:
    """Begins a region inside the innermost one. Raises UsageError if waits cannot be seen here."""
    entered, outer = _here.entered, _innermost.get()
    while outer is not None and not (outer.active and outer.siblings is entered):
        outer = outer.outer
    region = Region(guard, outer, entered, _task())
    _innermost.set(region)
    entered.append(weakref.ref(region))
    if guard is not None:
        number = id(region)
        _guarded[number] = weakref.ref(region, lambda _: _forget(number))
        if not _is_on:
            try:
                _switch()
            except BaseException:
                leave(region)
                raise
    return region


def leave(region: Region) -> None:
    """Ends a region, in whatever thread or context. Does nothing if it has ended. Raises what a source raises as it
    reports waits: a warning, if they are errors.
    """
    if not region.active:
        return
    region.active = False
    region.siblings.remove(weakref.ref(region))
    if _innermost.get() is region:
        _innermost.set(region.outer)
    if region.guard is not None:
        try:
            for source in _sources:
                source.settle()
        finally:
            _forget(id(region))


def leave_one_of(entered: list[Region]) -> None:
    """Removes and leaves the innermost of these regions in this context; the last one if none is of this context."""
    region = _innermost.get()
    if entered and region is not entered[-1]:
        while region is not None and region not in entered:
            region = region.outer
        region = region or entered[-1]
    if entered and region is not None:
        entered.remove(region)
        leave(region)


def add_source(source: Source) -> None:
    """Adds a source of waits."""
    _sources.append(source)
    when_switched(source.switch)


def remove_source(source: Source) -> None:
    """Removes a source that was added."""
    with _lock:
        _sources.remove(source)
        _switches.remove(source.switch)


def when_switched(switch: Callable[[bool], None]) -> None:
    """Calls `switch` with whether any thread is guarded: at once if so, and whenever that changes."""
    with _lock:
        _switches.append(switch)
        if _is_on:
            switch(True)


def _task() -> asyncio.Task[object] | None:
    """Returns this thread's asyncio task, without importing asyncio."""
    module = sys.modules.get("asyncio")
    loop = module._get_running_loop() if module is not None else None
    task: asyncio.Task[object] | None = module.current_task(loop) if module is not None and loop is not None else None
    return task


def _is_current(task: asyncio.Task[object] | None) -> bool:
    return task is None or sys.modules["asyncio"].current_task(task.get_loop()) is task


def has_source() -> bool:
    """Returns whether something reports waits of this process to guards."""
    return bool(_sources)


def _own() -> Region | None:
    """Returns the innermost active region that was entered in this thread and task, or around the task's creation."""
    region = _innermost.get()
    while region is not None and not (region.active and region.siblings is _here.entered):
        region = region.outer
    return region


def _forget(number: int) -> None:
    if _guarded.pop(number, None) is not None and not _guarded:
        _switch()


def _switch() -> None:
    """Tells the sources whether any thread is guarded, if that changed. If one raises, all are told that none is."""
    global _is_on
    with _lock:  # until all are told: another thread that enters a guard meanwhile waits for that
        while _is_on != bool(_guarded):
            on = not _is_on
            try:
                for switch in _switches:
                    switch(on)
            except BaseException:
                on = False
                for switch in _switches:
                    switch(False)
                raise
            finally:
                _is_on = on
