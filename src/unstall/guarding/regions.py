"""Finds the active guard of a thread and asyncio task. In autograd's threads, it is the guard of the thread that called
backward().

A region lasts from entering a block to leaving it. A context variable holds the innermost region. A new task copies the
context, so it has the regions of the task that created it, as long as they are active. Threads that run in a copy of
another thread's context, such as those of asyncio.to_thread, see regions of that other thread, which do not count. A
region may be left in another context than it was entered in, for example when a generator is dropped in the middle. So
leaving a region marks the region itself.
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
    """A block that has been entered. Its waits are reported to `guard`, or allowed if `guard` is None. `outer` is the
    region around it.
    """

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
        """Called when the first thread becomes guarded (True), and when no thread is guarded any more (False). Raises
        UsageError if the source cannot see waits.
        """

    def settle(self) -> None:
        """Called when a guard is left. Reports the waits that have ended."""


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
    """Makes the innermost region also hold in those contexts of its thread that have no region, such as tasks that were
    created before it.
    """
    region = _own()
    if region is not None:
        region.in_all_contexts = True


def _of_all_contexts() -> Region | None:
    return next((region for region in _innermost_first(_here.entered) if region.in_all_contexts), None)


def innermost_of(thread: int) -> Region | None:
    """Returns the innermost active region of another thread, or None.

    A context can be read only in its own thread. So regions that a task of the other thread has from its creator are
    not found.
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
    entered, outer = _here.entered, _own()
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
    """Ends a region, whatever thread or context this is. Does nothing if the region has ended.

    A source reports waits when a region ends. If warnings are errors, its warning is raised here.
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
    """Leaves one region of `entered` and removes it from the list: the innermost one in this context, or the last of
    the list if none is in this context.
    """
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
    """Calls `switch` whenever the first thread becomes guarded (True) or no thread is guarded any more (False). Calls
    it at once if a thread is guarded now.
    """
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
