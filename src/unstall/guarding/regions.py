"""Finds the active guard of a thread and asyncio task. In an autograd thread, the active guard is the guard of the
thread that called backward().

A region is an entered `with` block. It begins when the block is entered, and ends when the block is left. A context
variable holds the innermost region. A new asyncio task copies the context, so the creating task's regions also apply in
the new task, as long as these regions are active. Some threads run in a copy of another thread's context, such as the
threads of asyncio.to_thread. The regions of the other thread do not apply in such a thread. A region may be entered in
one context and left in another context, for example if a generator is deleted before it ends. So the end of a region is
stored in the region, not in the context.
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
    """A `with` block of `no_sync` or `allow_sync` that the program has entered. The region is active until the block is
    left.

    Attributes:
        guard: The guard that waits in the block are reported to. None if the block allows waits.
        outer: The innermost region that was active when this region was entered. None if no region was active.
        siblings: All active regions that were entered in the same thread as this region.
        task: The asyncio task in which this region was entered. None if the region was entered outside of tasks.
        active: True until the block is left.
        in_all_contexts: Whether the region also applies in those contexts (`contextvars`) of its thread in which no
            region was entered.
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
    """The active regions that were entered in one thread, in order. The references are weak, so that only contexts and
    blocks keep the regions alive."""

    __slots__ = ("__weakref__",)


class Source(Protocol):
    """An object that reports waits of the CPU for the GPU to guards (`no_sync`). It does so by calls of `on_wait`, as
    the docstring of `unstall.guarding.state` describes."""

    def switch(self, on: bool) -> None:
        """Starts or stops the reports. It is called with True when a guard becomes active and no guard was active
        before. It is called with False when no guard is active in any thread any more.

        Raises:
            UsageError: The source cannot observe waits on this machine.
        """

    def settle(self) -> None:
        """Reports all waits that have ended and that the source has not reported yet. It is called when a guarded block
        is left."""


class _Here(threading.local):
    """The regions (`with` blocks of `no_sync` or `allow_sync`) that were entered in the current thread. If a region is
    never left, it ends when its thread ends."""

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
"""A function that `backward.py` sets. In an autograd thread, it returns the region (the `with` block of `no_sync` or
`allow_sync`) that was the innermost one when backward() was called. In any other thread, it returns None."""


def innermost() -> Region | None:
    """Returns the innermost active region of the current thread and asyncio task, or None. A region is a `with` block
    of `no_sync` or `allow_sync`. In an autograd thread, returns the innermost active region of the thread that called
    backward()."""
    region = _own()
    if region is None:
        region = caller()
        while region is not None and not region.active:
            region = region.outer
    return region or _of_all_contexts()


def hold_in_all_contexts() -> None:
    """Makes the innermost active region (a `with` block of `no_sync` or `allow_sync`) also apply in those contexts
    (`contextvars`) of this thread in which no region was entered. An example is the context of an asyncio task that was
    created before the region was entered."""
    region = _own()
    if region is not None:
        region.in_all_contexts = True


def _of_all_contexts() -> Region | None:
    return next((region for region in _innermost_first(_here.entered) if region.in_all_contexts), None)


def innermost_of(thread: int) -> Region | None:
    """Returns the innermost active region of another thread, or None. A region is a `with` block of `no_sync` or
    `allow_sync`. `thread` is the `threading.get_ident()` of the other thread.

    An asyncio task inherits regions from the task that creates it. This function does not find inherited regions. They
    are only in the context of the task that inherited them, and other threads cannot read this context.
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
    """Returns whether a wait for the GPU in the current thread and asyncio task would be reported to a guard
    (`no_sync`)."""
    region = innermost()
    return region is not None and region.guard is not None


def enter(guard: Guard | None) -> Region:
    """Begins and returns a region: a `with` block of `no_sync` or `allow_sync`. The new region is inside the innermost
    active region of the current thread and asyncio task.

    Args:
        guard: The guard to which waits in the region are reported. None if the region allows waits.

    Raises:
        UsageError: Waits cannot be observed on this machine.
    """
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
    """Ends a region: a `with` block of `no_sync` or `allow_sync`. It may be called in any thread and context. Does
    nothing if the region has already ended.

    If the region has a guard, the sources of waits first report the waits that they have not reported yet. If the
    program turns warnings into errors, the warnings for these waits are raised.
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
    """Ends one region of the list `entered` and removes it from the list. A region is a `with` block of `no_sync` or
    `allow_sync`. Ends the innermost region of the list that was entered in the current context (`contextvars`). If none
    was entered in this context, ends the last region of the list. Does nothing if the list is empty."""
    region = _innermost.get()
    if entered and region is not entered[-1]:
        while region is not None and region not in entered:
            region = region.outer
        region = region or entered[-1]
    if entered and region is not None:
        entered.remove(region)
        leave(region)


def add_source(source: Source) -> None:
    """Adds a source of waits: an object that reports waits for the GPU to guards (`no_sync`). If a guard is active in
    any thread, switches the source on immediately."""
    _sources.append(source)
    when_switched(source.switch)


def when_switched(switch: Callable[[bool], None]) -> None:
    """Registers a callback. `switch(True)` is called when a guard (`no_sync`) becomes active and no guard was active
    before. `switch(False)` is called when no guard is active in any thread any more. If a guard is active now,
    `switch(True)` is called immediately."""
    with _lock:
        _switches.append(switch)
        if _is_on:
            switch(True)


def _task() -> asyncio.Task[object] | None:
    """Returns the asyncio task that runs in this thread, or None. Does not import asyncio."""
    module = sys.modules.get("asyncio")
    loop = module._get_running_loop() if module is not None else None
    task: asyncio.Task[object] | None = module.current_task(loop) if module is not None and loop is not None else None
    return task


def _is_current(task: asyncio.Task[object] | None) -> bool:
    return task is None or sys.modules["asyncio"].current_task(task.get_loop()) is task


def has_source() -> bool:
    """Returns whether any object in this process reports waits for the GPU to guards (`no_sync`)."""
    return bool(_sources)


def _own() -> Region | None:
    """Returns the innermost active region that was entered in the current thread. Returns None if there is none. A
    region is a `with` block of `no_sync` or `allow_sync`.

    The context of an asyncio task also contains the regions that were active when the task was created.
    """
    region = _innermost.get()
    while region is not None and not (region.active and region.siblings is _here.entered):
        region = region.outer
    return region


def _forget(number: int) -> None:
    if _guarded.pop(number, None) is not None and not _guarded:
        _switch()


def _switch() -> None:
    """Calls the registered callbacks with True if a guard has become active and no guard was active before. Calls them
    with False if no guard is active any more. If a callback raises an exception, calls all callbacks with False."""
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
