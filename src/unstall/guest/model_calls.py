"""Reports calls of a program's outermost `torch.nn.Module` as step boundaries. Uses sys.monitoring (Python 3.12 and
newer)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import CodeType
from typing import Any

from unstall.errors import UnstallError
from unstall.guest.monitoring import let_go, take
from unstall.guest.step_source import FORWARD, StepSource
from unstall.guest.steps import is_outermost

assert sys.version_info >= (3, 12)


class ModelCallHooks:
    """Calls `on_boundary` at each call of an outermost `torch.nn.Module`. A call is outermost if it is not made inside
    the call of another module.

    Watching the calls of all modules costs a few tenths of a microsecond for each call of a module. `follow` limits the
    watch to one module, which costs less: if each call of this module runs its `forward` equally often, only the start
    of `forward` is watched.
    """

    def __init__(self, on_boundary: Callable[[str, int], None]) -> None:
        self._on_boundary = on_boundary
        self._call: CodeType = import_module("torch.nn").Module.__call__.__code__
        self._forwards: dict[int, CodeType | None] = {}
        self._followed: int | None = None
        self._forward: CodeType | None = None
        self._starts = 0
        self._a_call: int | None = None  # starts of the followed `forward` within one call of the followed module
        self._narrow = False
        self._tool: int | None = None
        with suppress(UnstallError):  # the other sources of steps still work
            self._tool = take("unstall steps")
        if self._tool is not None:
            sys.monitoring.register_callback(self._tool, sys.monitoring.events.PY_START, self._started)
            self._watch(self._call)

    def follow(self, source: StepSource | None) -> None:
        """Limits the watch to the calls of one module. `source.who` is the `id` of this module. If `source` is None,
        watches the calls of all modules."""
        if self._tool is None:
            return
        if self._forward is not None:
            self._unwatch(self._forward)
        self._followed = source.who if source is not None else None
        self._forward = self._forwards.get(source.who) if source is not None else None
        self._starts, self._a_call, self._narrow = 0, None, False
        self._watch(self._call)
        if self._forward is not None:
            self._watch(self._forward)

    def remove(self) -> None:
        """Stops watching, and frees the tool id of sys.monitoring."""
        if self._tool is None:
            return
        let_go(self._tool, filter(None, (self._call, self._forward)))
        self._tool = None

    def _watch(self, code: CodeType) -> None:
        assert self._tool is not None
        sys.monitoring.set_local_events(self._tool, code, sys.monitoring.events.PY_START)

    def _unwatch(self, code: CodeType) -> None:
        assert self._tool is not None
        sys.monitoring.set_local_events(self._tool, code, sys.monitoring.events.NO_EVENTS)

    def _started(self, code: CodeType, _offset: int) -> None:
        if code is self._forward:
            if self._narrow and self._a_call and self._starts % self._a_call == 0:
                self._on_boundary(FORWARD, self._followed or 0)
            self._starts += 1
        elif code is self._call and not self._narrow:
            frame = sys._getframe(1)
            if is_outermost(frame):
                self._outermost(frame.f_locals["self"])

    def _outermost(self, module: Any) -> None:
        who = id(module)
        if self._followed is None:
            forward = getattr(module, "forward", None)
            code = getattr(getattr(forward, "__func__", forward), "__code__", None)
            self._forwards[who] = code if isinstance(code, CodeType) else None
        elif self._followed == who and self._forward is not None:
            if self._starts and self._starts == self._a_call:
                self._narrow, self._starts = True, 0
                self._unwatch(self._call)
                return  # the call's `forward` starts next, and is the boundary
            self._starts, self._a_call = 0, self._starts
        self._on_boundary(FORWARD, who)
