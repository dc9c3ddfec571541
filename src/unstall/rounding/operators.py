"""Observes the operators that a function calls, in the forward and the backward pass, in the order
in which they run.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, TypeAlias

import torch

from unstall.frameworks import OURS, is_framework
from unstall.guest.backward_passes import ENGINE
from unstall.guest.dispatch_mode import DispatchMode

_NO_NODE = 1 << 63  # from here on, a node has no number


@dataclass(frozen=True, slots=True)
class Place:
    """The source line that called an operator: the innermost line that is neither in a framework,
    such as torch, nor in unstall.

    Attributes:
        file: The path of the file.
        line: The line number.
        function: The function that contains the line.
        backward: Whether the operator ran in the backward pass. The line is then that of the
            forward operator.
        text: The text of the line as it was stored with a recorded run; the file may have changed
            since. If None, the text is read from the file.
    """

    file: str
    line: int
    function: str
    backward: bool = False
    text: str | None = field(default=None, compare=False)

    @property
    def source(self) -> str:
        """The text of the line; "" if it is not known."""
        return linecache.getline(self.file, self.line).strip() if self.text is None else self.text


NOWHERE = Place("", 0, "")
Hook: TypeAlias = Callable[[Any, tuple[Any, ...], Place, Any], None]
"""A function that is called with an operator, its positional arguments, its place in the source and its result."""
Call: TypeAlias = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""A function that is given an operator, its positional and its keyword arguments. It calls the
operator and returns the result.
"""


class Operators(DispatchMode):
    """A dispatch mode that calls each operator through the function `call`, and then calls the
    function `hook` with the result. It may be entered again while it is active.

    An operator of a backward pass has the place of the forward operator whose gradient it computes.
    If a backward function is written in Python, the operators that it calls have the places of
    these calls. `hook` is called on the thread that called the operator; in a backward pass, that
    is a thread of autograd.
    """

    supports_higher_order_operators = True  # they are called as they are

    def __init__(self, hook: Hook | None = None, call: Call | None = None) -> None:
        super().__init__()
        self._hook = hook
        self._call = call or as_it_is
        self._lines = _Lines()
        self._places: dict[int, _Line] = {}  # of forward operators, by the number of their autograd node

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **(kwargs or {}))
        if self._hook is None:
            return self._call(func, args, kwargs or {})
        place = self._place()
        result = self._call(func, args, kwargs or {})
        self._hook(func, args, place, result)
        return result

    def _place(self) -> Place:
        torch_c: Any = torch._C
        node = torch_c._current_autograd_node()
        if node is None:
            line = self._lines.of(sys._getframe(2))
            # The operator's node was made last, or it has none: then the last node has its place already.
            self._places.setdefault(torch_c._autograd._get_sequence_nr() - 1, line)
            return line.forward
        line = self._lines.of(sys._getframe(2), until=ENGINE)  # of a backward that is written in Python
        if line is _NO_LINE:
            number = node._sequence_nr()
            line = self._places.get(number, _NO_LINE) if number < _NO_NODE else _NO_LINE
        return line.backward


class _Line:
    """One source line as two places: for operators of the forward pass, and for operators of the backward pass."""

    __slots__ = ("backward", "code", "forward")

    def __init__(self, place: Place, code: CodeType | None = None) -> None:
        self.forward, self.backward = place, replace(place, backward=True)
        self.code = code  # it is kept, so that no other code gets its identity


_NO_LINE = _Line(NOWHERE)


class _Lines:
    """The lines that have called operators so far."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Line] = {}

    def of(self, frame: FrameType | None, until: str = "") -> _Line:
        """Returns the innermost line outside frameworks and unstall; `_NO_LINE` if there is no such line.

        Looks at the frames from `frame` outwards, up to the function `until`.
        """
        while frame is not None and (code := frame.f_code).co_name != until:
            if not _is_passed_over(code.co_filename):
                key = id(code), frame.f_lineno
                known = self._known.get(key)
                if known is None:
                    place = Place(code.co_filename, frame.f_lineno, code.co_qualname)
                    known = self._known[key] = _Line(place, code)
                return known
            frame = frame.f_back
        return _NO_LINE


def as_it_is(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Calls an operator without any change, and returns its result."""
    return func(*args, **kwargs)


@lru_cache(4096)
def _is_passed_over(file: str) -> bool:
    return file.startswith(OURS) or is_framework(file)
