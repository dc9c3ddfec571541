"""Calls the reference function with random rounding errors in its operators, but only if these calls have no lasting
effects.

The calls compute slightly wrong values, so the program must not keep any of these values. Also, the results of the
calls must differ only because of the random errors. One additional call without errors checks whether both conditions
are met.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.comparing.agreement import NoNoise
from unstall.measuring.comparing.result_arrays import tensors_of
from unstall.rounding.agree import noise
from unstall.rounding.facts import facts_of, written_by
from unstall.rounding.judge import RUNS
from unstall.rounding.noise import Noise
from unstall.rounding.operators import Call, Operators, as_it_is


class NoisyCalls:
    """Calls a function with random rounding errors in its operators. To make a call, call the object with a number,
    which is the seed of the errors.

    Args:
        call: The function with its arguments. Each call gets copies of the arguments.
        copied: A function that returns a copy of a value.
        randomness: A function that returns a context manager, which restores the states of random number generators.
        is_same: A function that returns whether a result is equal to the result of a call without errors.
        seconds: The time limit in s for all calls together.
    """

    def __init__(
        self,
        call: FunctionCall,
        copied: Callable[[Any], Any],
        randomness: Callable[[], AbstractContextManager[None]],
        is_same: Callable[[object], bool],
        seconds: float,
    ) -> None:
        self._call = call
        self._copied = copied
        self._randomness = randomness
        self._is_same = is_same
        self._seconds = seconds
        self._why_not: str | None = None  # "" if there is no reason

    def __call__(self, number: int) -> object:
        """Calls the function with random errors, and returns the result of the function. `number` is the seed of the
        errors.

        Raises:
            NoNoise: Random errors cannot be added to the function, or the calls would take too long.
        """
        if self._why_not is None:
            self._why_not = self._reason()
        if self._why_not:
            raise NoNoise(self._why_not)
        began = time.monotonic()
        try:
            result, _ = self._ran(_Traces(Noise(number).call, strict=True))
        except NoNoise as error:
            self._why_not = str(error)
            raise
        except Exception as error:
            self._why_not = f"with random errors, the first function raises {type(error).__name__}"
            raise NoNoise(self._why_not) from error
        if (time.monotonic() - began) * RUNS > self._seconds:
            self._why_not = "that would take too long"
            raise NoNoise(self._why_not)
        return result

    def _reason(self) -> str:
        """Calls the function without errors. Returns the reason why errors cannot be added to the function. Returns ""
        if errors can be added."""
        with noise(0):  # the first such mode takes torch a second
            torch.zeros(1).exp()
        traces = _Traces(as_it_is, strict=False)
        began = time.monotonic()
        try:
            result, kept = self._ran(traces)
        except Exception as error:
            return f"while its operators are watched, the first function raises {type(error).__name__}"
        if traces.why:
            return traces.why
        if any(each.untyped_storage()._cdata not in traces.own for each in tensors_of(result)):
            return "the first function returns memory that it did not allocate"
        if (time.monotonic() - began) * RUNS > self._seconds:
            return "that would take too long"
        if not self._is_same(result):
            return "the first function does not give the same result each time"
        del result, kept
        if traces.alive():
            return "the first function keeps tensors for later"
        return ""

    def _ran(self, traces: _Traces) -> tuple[object, object]:
        """Calls the function on copies of its arguments. Returns (result, copies of the arguments)."""
        given = self._call.args, dict(self._call.kwargs)
        args, kwargs = self._copied(given[0]), self._copied(given[1])
        outside = {each.untyped_storage()._cdata for each in _tensors(given)}
        traces.own |= {each.untyped_storage()._cdata for each in _tensors((args, kwargs))} - outside
        with self._randomness(), Operators(call=traces.call):
            return self._call.fn(*args, **kwargs), (args, kwargs)


class _Traces:
    """Runs the operators of a function, and finds out whether the function has lasting effects.

    A function has lasting effects if it writes to tensors that it did not create, or if it keeps tensors that it
    created.

    Args:
        call: A function that calls one operator.
        strict: Whether to raise NoNoise before a call of an operator that has lasting effects.
    """

    def __init__(self, call: Call, *, strict: bool) -> None:
        self.own: set[int] = set()
        self.why = ""
        self._call = call
        self._strict = strict
        self._made: list[StorageWeakRef] = []

    def call(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        why = self._left_by(func, args, kwargs)
        self.why = self.why or why
        if why and self._strict:
            raise NoNoise(why)
        given = {each.untyped_storage()._cdata for each in _tensors((args, dict(kwargs)))}
        result = self._call(func, args, kwargs)
        for each in _tensors(result):
            storage = each.untyped_storage()
            if storage._cdata not in given and storage._cdata not in self.own:
                self.own.add(storage._cdata)
                self._made.append(StorageWeakRef(storage))
        return result

    def alive(self) -> bool:
        """Returns whether the program still keeps a reference to a tensor that the function created."""
        if not all(each.expired() for each in self._made):
            gc.collect()
        return not all(each.expired() for each in self._made)

    def _left_by(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        if facts_of(func).name == "_local_scalar_dense" and (args[0].is_floating_point() or args[0].is_complex()):
            return "the first function reads numbers from tensors to Python"
        if any(isinstance(each, torch.Generator) for each in (*args, *kwargs.values())):
            return "the first function has a random generator of its own"
        if any(each.untyped_storage()._cdata not in self.own for each in _tensors(written_by(func, args, kwargs))):
            return "the first function writes to tensors that it did not make"
        return ""


def _tensors(value: object) -> list[torch.Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, torch.Tensor) and each.layout == torch.strided]
