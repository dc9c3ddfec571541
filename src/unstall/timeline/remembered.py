"""A cache for functions of a run, which rules and edits call often with the same arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

_Run = TypeVar("_Run")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def remembered(
    ask: Callable[Concatenate[_Run, _Arguments], _Answer],
) -> Callable[Concatenate[_Run, _Arguments], _Answer]:
    """A decorator that caches what a function of a run returns, until the run is freed.

    The first argument of the function is the run: a `Timeline`, or another object that is compared
    by identity. The other arguments must be hashable, and should have few distinct values. A
    returned array becomes read-only, because all callers share it.
    """
    known: WeakKeyDictionary[_Run, dict[Hashable, _Answer]] = WeakKeyDictionary()

    @functools.wraps(ask)
    def answer(run: _Run, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Answer:
        answers = known.setdefault(run, {})
        asked = arguments, tuple(named.items())
        if asked not in answers:
            answers[asked] = _shared(ask(run, *arguments, **named))
        return answers[asked]

    return answer


def _shared(answer: Any) -> Any:
    if isinstance(answer, np.ndarray):
        answer.flags.writeable = False
    return answer
