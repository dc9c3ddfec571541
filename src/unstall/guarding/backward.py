"""Activates the guard of a backward pass's caller in the autograd threads that run the backward pass.

`torch._C._stash_obj_in_tls` stores an object for the current thread. When this thread calls backward(), torch copies
the object into the autograd threads that run the backward pass. The guard is stored only until this backward() ends,
because the active guard depends on the asyncio task too, and torch distinguishes only threads.
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
    """The caller of a backward pass that has not ended.

    Attributes:
        region: The innermost block of `no_sync` or `allow_sync` around the call of backward().
        frame: The Python frame that called backward().
    """

    region: Region
    frame: FrameType


_running: list[Caller] = []


def carry(torch: ModuleType) -> None:
    """Patches torch's autograd engine, so that a guard (`no_sync`) covers the backward passes that are called in its
    block. The guard is then also active in the autograd threads that run these backward passes.

    Does nothing if this version of torch cannot copy objects into autograd's threads. `torch` is the imported module
    torch.
    """
    torch_c: Any = torch._C
    if not hasattr(torch_c, "_stash_obj_in_tls"):
        return
    stash = _stash(torch_c)

    class Engine(torch_c._ImperativeEngine):  # type: ignore[misc]
        """torch's autograd engine with one addition: the guard that is active at the call of backward() is also active
        in the autograd threads."""

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


_increase_references = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))


def _stash(torch_c: Any) -> Callable[[object], None]:
    """Returns a function that stores an object in torch's thread-local storage. Autograd threads get a copy of this
    storage.

    When a stored object is replaced, torch releases one reference to it. Some versions of torch, such as 2.11, took no
    reference when the object was stored. The object would then be freed while it is in use. For these versions, the
    returned function takes the reference.
    """
    probe = object()
    before = sys.getrefcount(probe)
    torch_c._stash_obj_in_tls(_KEY, probe)
    is_taken = sys.getrefcount(probe) > before
    take: Callable[[object], object] = (lambda kept: None) if is_taken else _increase_references
    take(probe)

    def stash(kept: object) -> None:
        take(kept)
        torch_c._stash_obj_in_tls(_KEY, kept)

    stash(None)
    return stash


def caller_of(thread: int) -> Caller | None:
    """Returns the caller of the backward pass that another thread runs. Returns None if it is not certain that the
    thread runs a guarded backward pass, or which one. A backward pass is guarded if it was called in a block of
    `no_sync` or `allow_sync`.

    It is certain if exactly one guarded backward pass runs in this process and if the thread was not started by
    Python's `threading`. `thread` is the `threading.get_ident()` of the other thread.
    """
    if len(_running) != 1 or any(own.ident == thread for own in threading.enumerate()):
        return None
    return _running[0]


def place() -> Place | None:
    """Returns the line that called backward(), if the current thread is an autograd thread and runs a backward pass
    that was called in a block of `no_sync` or `allow_sync`. Otherwise returns None."""
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
