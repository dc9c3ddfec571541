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
    """Makes backward passes carry the caller's guard, while any thread is guarded. Called once torch was imported."""
    regions.caller = _region
    regions.when_switched(_Carrying(torch).switch)


def place() -> Place | None:
    """Returns the line that called the backward pass for which this thread works, or None."""
    found = _caller()
    return place_of(found.frame) if found is not None else None


class _Carrying:
    """Puts an engine that carries guards in the place of torch's, and puts torch's back."""

    def __init__(self, torch: ModuleType) -> None:
        self._variable = torch.autograd.Variable
        self._torch_c = torch._C
        self._ours: _Engine | None = None

    def switch(self, on: bool) -> None:
        if on:
            self._ours = _Engine(self._variable._execution_engine, self._torch_c)
            self._variable._execution_engine = self._ours
        elif self._ours is not None and self._variable._execution_engine is self._ours:
            self._variable._execution_engine = self._ours.engine


class _Engine:
    """torch's engine, whose backward passes carry the guard of their caller."""

    def __init__(self, engine: Any, torch_c: Any) -> None:
        self.engine = engine
        self._torch_c = torch_c

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        region = regions.innermost()
        if region is None:
            return self.engine.run_backward(*args, **kwargs)
        before = _caller()
        self._torch_c._stash_obj_in_tls(_KEY, _Caller(region, sys._getframe(1)))
        try:
            return self.engine.run_backward(*args, **kwargs)
        finally:
            self._torch_c._stash_obj_in_tls(_KEY, before)


def _caller() -> _Caller | None:
    torch_c: Any = sys.modules.get("torch._C")
    if torch_c is None or not torch_c._is_key_in_tls(_KEY):
        return None
    found: _Caller | None = torch_c._get_obj_in_tls(_KEY)
    return found


def _region() -> Region | None:
    found = _caller()
    return found.region if found is not None else None
