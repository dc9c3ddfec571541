"""Step boundaries that the program sets by `unstall.step()`, or that `unstall.fix` sets for the program.

`step_hooks.py` finds step boundaries in calls of torch's functions. `step_source.py` decides which boundaries count as
steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from unstall.guest import active
from unstall.guest.step_source import EXPLICIT, LOADER


class HandedOn:
    """An iterator over the items that a function such as `unstall.prefetch` takes from a loader for the program. Each
    item counts as one step of the program.

    The function may take an item before the program asks for it, and on another thread. So no step boundary is set when
    the function takes an item from this iterator. Instead, the function sets the step boundary (`item_handed_on`) when
    the program receives the item.
    """

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> HandedOn:
        return self

    def __next__(self) -> Any:
        if active.current() is None:  # no boundary is set, unless a recording begins during this very item
            return next(self._items)
        _fetching.depth = getattr(_fetching, "depth", 0) + 1
        try:
            return next(self._items)
        finally:
            _fetching.depth -= 1


def is_fetching() -> bool:
    """Returns whether the current thread is taking an item from a `HandedOn` iterator."""
    return getattr(_fetching, "depth", 0) > 0


def item_handed_on(source: object) -> None:
    """Sets a step boundary. Call this when a function such as `unstall.prefetch` passes the next item to the program.
    `source` is the loader or the mapped function that the item comes from."""
    recording = active.current()
    if recording is None or steps_are_ignored() or is_fetching():  # if it fetches, the outer iterator sets the boundary
        return
    recording.step_boundary(LOADER, id(source))


def loop_ended(source: object) -> None:
    """Notes that a loop over the items of `source` has ended, and its last step with it. Call this when a function such
    as `unstall.prefetch` has no more items for the program."""
    recording = active.current()
    if recording is None or steps_are_ignored() or is_fetching():
        return
    recording.loop_ended(LOADER, id(source))


def step() -> None:
    """End a step of the program here.

    Call this function once per step, after the step's work. If a program calls `unstall.step()`, only these calls end
    the program's steps. If the program is not being recorded, the call does nothing.

    Several threads may call `unstall.step()` at the same time.
    """
    if steps_are_ignored():
        return
    recording = active.current()
    if recording is not None:
        recording.step_boundary(EXPLICIT)
    for observe in getattr(_observing, "steps", ()):
        observe(EXPLICIT, 0)


@contextmanager
def observing_steps(observe: Callable[[str, int], None]) -> Iterator[None]:
    """Calls `observe(kind, who)` whenever this thread calls `step` during the block.

    This works whether or not the program is being recorded.
    """
    before = getattr(_observing, "steps", ())
    _observing.steps = (*before, observe)
    try:
        yield
    finally:
        _observing.steps = before


@contextmanager
def ignoring_steps() -> Iterator[None]:
    """Ignores all step boundaries of the current thread during the block. Use it around work that unstall does for
    itself, for example a trial run of one of the program's functions."""
    _ignoring.depth = getattr(_ignoring, "depth", 0) + 1
    try:
        yield
    finally:
        _ignoring.depth -= 1


def steps_are_ignored() -> bool:
    """Returns whether the current thread is in a block of `ignoring_steps()`."""
    return getattr(_ignoring, "depth", 0) > 0


@contextmanager
def proving() -> Iterator[None]:
    """Marks a block in which a function such as `unstall.graphed` tests something that its later calls rely on, for
    example a captured CUDA graph.

    A recording waits for steps that do not contain such a block, because the test takes extra time.
    """
    global _proofs
    _proofs += 1
    try:
        yield
    finally:
        _proofs += 1  # a step boundary may lie within the block: the step that it begins proves too


def proofs() -> int:
    """Returns a number that changes when a `proving()` block begins or ends. If two calls return the same number, no
    block began or ended between the calls."""
    return _proofs


def is_outermost(frame: FrameType) -> bool:
    """Returns True if none of the callers of `frame` runs the same code as `frame`. If a caller does, `frame` is a
    nested call, such as the step of an optimizer inside the step of another optimizer, and does not end a step of its
    own."""
    caller = frame.f_back
    while caller is not None and caller.f_code is not frame.f_code:
        caller = caller.f_back
    return caller is None


_fetching = threading.local()
_observing = threading.local()
_ignoring = threading.local()
_proofs = 0
