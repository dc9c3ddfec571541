"""Carries the caller's guard into the threads in which autograd runs a backward pass for it.

torch copies objects of `torch._C._stash_obj_in_tls` from the thread that calls backward() into the threads of autograd
that work for it. They are stashed for the length of one backward(), because what is active depends on the asyncio task
too, and torch only knows threads.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from unstall.guarding import regions
from unstall.guarding.places import Place, place_of
from unstall.guarding.regions import Region

_KEY = "unstall.guarding"


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """The code that called a backward pass that is still running: its guard and its frame."""

    region: Region
    frame: FrameType


_running: list[Caller] = []


def carry(torch: ModuleType) -> None:
    """Patches torch's autograd engine: the guard of a thread that calls backward() also holds in the threads of
    autograd that run the backward pass. It is called when torch has been imported.

    Does nothing if this version of torch copies no objects into autograd's threads.
    """
    torch_c: Any = torch._C
    if not hasattr(torch_c, "_stash_obj_in_tls"):
        return
    stash = _stash(torch_c)

    class Engine(torch_c._ImperativeEngine):  # type: ignore[misc]
        """torch's engine, whose backward passes carry the guard of their caller."""

        def run_backward(self, *args: Any, **kwargs: Any) -> Any:
            region = regions.innermost()
            if region is None:
                return super().run_backward(*args, **kwargs)
            before, caller = _caller(), Caller(region, sys._getframe(1))
            stash(caller)
            _running.append(caller)
            try:
                return super().run_backward(*args, **kwargs)
            finally:
                _running.remove(caller)
                stash(before)

    variable: Any = torch.autograd.Variable
    ours, torchs = Engine(), variable._execution_engine

    def switch(on: bool) -> None:
        nonlocal torchs
        if on:
            torchs = variable._execution_engine
            variable._execution_engine = ours
        elif variable._execution_engine is ours:
            variable._execution_engine = torchs

    regions.caller = _region
    regions.when_switched(switch)


def _stash(torch_c: Any) -> Callable[[object], None]:
    """Returns a function that stashes an object for this thread, under our key.

    torch releases what was stashed once nobody can get it any more. Some versions, such as 2.11, do so without having
    taken a reference before. The object would then be freed while it is in use, so a reference is taken for them.
    """
    probe = object()
    before = sys.getrefcount(probe)
    torch_c._stash_obj_in_tls(_KEY, probe)
    is_taken = sys.getrefcount(probe) > before
    take: Callable[[object], object] = (lambda kept: None) if is_taken else ctypes.pythonapi.Py_IncRef
    take(ctypes.py_object(probe))

    def stash(kept: object) -> None:
        take(ctypes.py_object(kept))
        torch_c._stash_obj_in_tls(_KEY, kept)

    stash(None)
    return stash


def caller_of(thread: int) -> Caller | None:
    """Returns the caller of the backward pass for which another thread works, or None if the caller is not certain.

    It is certain if only one backward pass runs, and the thread is not one of the program's own threads.
    """
    if len(_running) != 1 or any(own.ident == thread for own in threading.enumerate()):
        return None
    return _running[0]


def place() -> Place | None:
    """Returns the line that called the backward pass for which this thread works, or None."""
    found = _caller()
    return place_of(found.frame) if found is not None else None


def _caller() -> Caller | None:
    torch_c: Any = sys.modules.get("torch._C")
    if torch_c is None or not torch_c._is_key_in_tls(_KEY):
        return None
    found: Caller | None = torch_c._get_obj_in_tls(_KEY)
    return found


def _region() -> Region | None:
    found = _caller()
    return found.region if found is not None else None
