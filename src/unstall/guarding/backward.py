"""Carries the caller's guard into the threads in which autograd runs a backward pass for it.

torch copies objects of `torch._C._stash_obj_in_tls` from the thread that calls backward() into the threads of autograd
that work for it. They are stashed for the length of one backward(), because what is active depends on the asyncio task
too, and torch only knows threads.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

from unstall.guarding import regions
from unstall.guarding.places import Place, place_of
from unstall.guarding.regions import Region

_KEY = "unstall.guarding"


@dataclass(frozen=True, slots=True)
class _Caller:
    region: Region
    frame: FrameType  # of the thread that called backward(), which waits there


def carry(torch: ModuleType) -> None:
    """Makes backward passes carry the caller's guard. Called once, after torch was imported. Does nothing if this torch
    carries no objects to autograd's threads.
    """
    torch_c: Any = torch._C
    if not hasattr(torch_c, "_stash_obj_in_tls"):
        return

    class Engine(torch_c._ImperativeEngine):  # type: ignore[misc]
        """torch's engine, whose backward passes carry the guard of their caller."""

        def run_backward(self, *args: Any, **kwargs: Any) -> Any:
            region = regions.innermost()
            if region is None:
                return super().run_backward(*args, **kwargs)
            before = _caller()
            torch_c._stash_obj_in_tls(_KEY, _Caller(region, sys._getframe(1)))
            try:
                return super().run_backward(*args, **kwargs)
            finally:
                torch_c._stash_obj_in_tls(_KEY, before)

    torch.autograd.Variable._execution_engine = Engine()
    regions.caller = _region


def place() -> Place | None:
    """Returns the line that called the backward pass for which this thread works, or None."""
    found = _caller()
    return place_of(found.frame) if found is not None else None


def _caller() -> _Caller | None:
    torch_c: Any = sys.modules.get("torch._C")
    if torch_c is None or not torch_c._is_key_in_tls(_KEY):
        return None
    found: _Caller | None = torch_c._get_obj_in_tls(_KEY)
    return found


def _region() -> Region | None:
    found = _caller()
    return found.region if found is not None else None
