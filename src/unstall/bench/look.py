"""One call, looked at from all sides before it is timed: what it reads, what it changes, what it leaves running."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.bench.adapters import Adapter, Array
from unstall.bench.call import Call

_REST_S = 0.004
_ALL_ZERO = 0.99  # shares of the values that were looked at
_SUBNORMAL = 0.01
_MUCH = 0.25  # of the inputs' bytes
_MOST_VALUES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen. Names are of inputs, as in `Call.inputs`."""

    inputs: tuple[Array, ...]
    changed: tuple[str, ...]  # by this call
    written: tuple[str, ...]  # by this call or those before: they may hold again what they held before this one
    zeros: tuple[str, ...]
    subnormal: tuple[str, ...]
    later: str | None  # what goes on after the call's return, in words
    result_arrays: int
    result_bytes: int
    result_none: bool
    gradients: bool  # whether it leaves gradients with its inputs
    extra_bytes: int | None  # that the call takes beyond its result, at its peak
    from_driver: int  # times that memory was asked of the driver

    @property
    def input_bytes(self) -> int:
        return sum(array.bytes for array in self.inputs)

    def on(self, device: str) -> tuple[Array, ...]:
        """Inputs there: "cpu", or "cuda" for any."""
        return tuple(array for array in self.inputs if array.device.split(":")[0] == device)


def held(call: Call, adapter: Adapter) -> dict[int, NDArray[np.generic]]:
    """Some of the values that inputs hold now, by the inputs' ids."""
    return {id(value): adapter.sample(adapter.array("", value)) for _, value in call.inputs() if adapter.holds(value)}


def look(call: Call, adapter: Adapter, at_first: dict[int, NDArray[np.generic]]) -> Look:
    """Make one call and say what was seen. `at_first` is what inputs held before the first one."""
    inputs = tuple(adapter.array(name, value) for name, value in call.inputs() if adapter.holds(value))
    adapter.synchronize()
    values = [adapter.sample(array) for array in inputs]
    versions = [adapter.version(array) for array in inputs]
    gradients = [adapter.gradient(array) for array in inputs]
    still = _standing_still()
    threads = set(threading.enumerate())
    before = adapter.memory()
    result = call()
    moving = _moving(still)
    adapter.wait(result)
    after = adapter.memory()
    later = _left_running(result, threads, moving)
    now = [adapter.sample(array) for array in inputs]
    rewritten = [adapter.version(array) != version for array, version in zip(inputs, versions, strict=True)]
    arrays = [array for array in _results(result, adapter) if not any(array.value is each.value for each in inputs)]
    size = sum(array.bytes for array in arrays)
    return Look(
        inputs=inputs,
        changed=tuple(array.name for array, new, old in zip(inputs, now, values, strict=True) if not _same(new, old)),
        written=tuple(
            array.name
            for array, new, again in zip(inputs, now, rewritten, strict=True)
            if again or not _same(new, at_first.get(id(array.value), new))
        ),
        zeros=_zeros(inputs, values),
        subnormal=tuple(
            array.name
            for array, value in zip(inputs, values, strict=True)
            if _subnormal_share(array, value) > _SUBNORMAL
        ),
        later=later,
        result_arrays=len(_results(result, adapter)),
        result_bytes=size,
        result_none=result is None,
        gradients=any(adapter.gradient(array) != old for array, old in zip(inputs, gradients, strict=True)),
        extra_bytes=max(0, after.peak - before.in_use - size) if before and after else None,
        from_driver=after.from_driver - before.from_driver if before and after else 0,
    )


def opened(result: Any, deep: int = 3) -> list[tuple[str, Any]]:
    """The values within a result: of containers, and of objects as models return them."""
    if isinstance(result, dict):
        inner = list(islice(result.values(), _MOST_VALUES))
    elif isinstance(result, list | tuple):
        inner = list(result[:_MOST_VALUES])
    elif type(result).__module__ != "builtins" and getattr(result, "__dict__", None) and not callable(result):
        inner = list(islice(vars(result).values(), _MOST_VALUES))
    else:
        return [("", result)]
    own = [] if isinstance(result, dict | list | tuple) else [("", result)]
    return own + [each for value in inner if deep for each in opened(value, deep - 1)]


def _results(result: Any, adapter: Adapter) -> list[Array]:
    return [adapter.array("", value) for _, value in opened(result) if adapter.holds(value)]


def _same(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _zeros(inputs: tuple[Array, ...], values: list[NDArray[np.generic]]) -> tuple[str, ...]:
    """Those of zeros alone, where they are much of all: a model's biases are not."""
    found = [array for array, value in zip(inputs, values, strict=True) if _all_zero(value)]
    much = sum(array.bytes for array in found) >= _MUCH * sum(array.bytes for array in inputs)
    return tuple(array.name for array in found) if much else ()


def _all_zero(value: NDArray[np.generic]) -> bool:
    return bool(value.size > 1 and value.dtype.kind in "fc" and (value == 0).mean() >= _ALL_ZERO)


def _subnormal_share(array: Array, value: NDArray[np.generic]) -> float:
    """By the smallest normal number of the array's own type, as `value` may be of a wider one."""
    if not value.size or value.dtype.kind != "f":
        return 0.0
    kind = str(getattr(array.value, "dtype", value.dtype)).removeprefix("torch.")
    smallest = _SMALLEST_NORMAL.get(kind)
    if smallest is None:
        return 0.0
    size = np.abs(value.astype(np.float64))
    return float(((size > 0) & (size < smallest)).mean())


_SMALLEST_NORMAL = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}


def _left_running(result: Any, threads: Iterable[threading.Thread], moving: list[str]) -> str | None:
    """What is still at work after the result was waited for, as far as that was."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        kind = "a coroutine" if inspect.iscoroutine(result) else "a generator"
        if inspect.iscoroutine(result):
            result.close()
        return f"the call returns {kind}, and none of its body has run"
    new = [each.name for each in threading.enumerate() if each not in threads]
    if new:
        return f"the call leaves a thread at work ({new[0]})"
    if callable(getattr(result, "done", None)) and callable(getattr(result, "result", None)):
        return f"the call returns a {type(result).__name__}, whose work goes on"
    if moving:
        return f"the call hands work to a thread ({moving[0]}) and does not wait for it"
    return None


def _standing_still() -> dict[int, tuple[FrameType, int]]:
    """Other threads of Python that do nothing."""
    first = _frames()
    time.sleep(_REST_S)
    second = _frames()
    return {thread: at for thread, at in second.items() if first.get(thread) == at}


def _moving(still: dict[int, tuple[FrameType, int]]) -> list[str]:
    """Names of those that do something now."""
    now = _frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [names.get(thread, "?") for thread, at in still.items() if now.get(thread, at) != at]


def _frames() -> dict[int, tuple[FrameType, int]]:
    mine = threading.get_ident()
    return {thread: (frame, frame.f_lasti) for thread, frame in sys._current_frames().items() if thread != mine}
