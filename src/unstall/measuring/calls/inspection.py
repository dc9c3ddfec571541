"""Inspects one call of the measured function before other calls are timed. Examines the inputs, the
side effects, and work that continues after the call returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.adapters import Adapter, Array
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.calls.kept_state import KeptState
from unstall.measuring.calls.unfinished_work import PythonThreads, unfinished_work

_ALL_ZERO = 0.99  # shares of the values that were looked at
_SUBNORMAL = 0.01
_NAN = 0.01
_MUCH = 0.25  # of the inputs' bytes
_MOST_VALUES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the inspection of one call of the measured function found. Inputs have the names that
    `FunctionCall.inputs` gives them.
    """

    inputs: tuple[Array, ...]
    changed: tuple[str, ...]  # by this call
    written: tuple[str, ...]  # by this call or earlier ones, even if the values are the same again
    replaced: tuple[str, ...] = ()  # by another array
    resized: tuple[str, ...] = ()  # containers
    iterators: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()  # functions whose cached result was used
    zeros: tuple[str, ...]
    subnormal: tuple[str, ...]
    nan: tuple[str, ...] = ()
    later: str | None  # description of work that goes on after the return
    result_bytes: int
    result_none: bool
    gradients: bool  # whether it leaves gradients with its inputs
    accumulates: bool = False  # whether it adds them to those that earlier calls left
    extra_bytes: int | None  # peak of allocated bytes beyond the result
    kept_bytes: int = 0  # kept by each call after its result is freed
    from_driver: int  # how often the driver was asked for memory

    @property
    def input_bytes(self) -> int:
        return sum(array.bytes for array in self.inputs)

    def on(self, device: str) -> tuple[Array, ...]:
        """Returns the inputs that are on a device of the type `device`, such as "cpu" or "cuda"."""
        return tuple(array for array in self.inputs if array.device.split(":")[0] == device)


def sampled_inputs(call: FunctionCall, adapter: Adapter) -> dict[int, NDArray[np.generic]]:
    """Returns a dict from the `id()` of each input array of `call` to a flat array with a sample of
    its current values.
    """
    return {id(value): adapter.sample(adapter.array("", value)) for _, value in call.inputs() if adapter.holds(value)}


def inspect_call(
    call: FunctionCall,
    adapter: Adapter,
    at_first: dict[int, NDArray[np.generic]],
    run: Callable[[], object] | None = None,
    *,
    once: bool = False,
) -> Inspection:
    """Makes one call and returns what was found about it. If the framework's caching allocator has
    counters, makes a second call to find out how much memory each call keeps.

    Args:
        call: The function with its arguments.
        adapter: The adapter of the arrays' framework.
        at_first: Samples of the inputs before the first call of the function, as `sampled_inputs`
            returns them.
        run: A function that makes the call. The default is `call`.
        once: If True, no second call is made.
    """
    run = run or call
    inputs = tuple(adapter.array(name, value) for name, value in call.inputs() if adapter.holds(value))
    adapter.synchronize()
    values = [adapter.sample(array) for array in inputs]
    versions = [adapter.version(array) for array in inputs]
    gradients = [adapter.gradient(array) for array in inputs]
    kept, threads = KeptState.of(call, adapter), PythonThreads()
    before = adapter.memory()
    result = run()
    moved = threads.moved()
    adapter.wait(result)
    after = adapter.memory()
    later = unfinished_work([value for _, value in opened(result)], threads.new(), moved)
    then = KeptState.of(call, adapter)
    now = [adapter.sample(array) for array in inputs]
    rewritten = [adapter.version(array) != version for array, version in zip(inputs, versions, strict=True)]
    arrays = [adapter.array("", value) for _, value in opened(result) if adapter.holds(value)]
    new_bytes = sum(array.bytes for array in arrays if not any(array.value is each.value for each in inputs))
    left = [adapter.gradient(array) for array in inputs]
    seen = Inspection(
        inputs=inputs,
        changed=tuple(array.name for array, new, old in zip(inputs, now, values, strict=True) if not _same(new, old)),
        written=tuple(
            array.name
            for array, new, again in zip(inputs, now, rewritten, strict=True)
            if again or not _same(new, at_first.get(id(array.value), new))
        ),
        replaced=kept.replaced(then),
        resized=kept.resized(then),
        iterators=kept.iterators,
        cached=kept.found(then),
        zeros=_zeros(inputs, values),
        subnormal=_holding(inputs, values, _subnormal_share, _SUBNORMAL),
        nan=_holding(inputs, values, _nan_share, _NAN),
        later=later,
        result_bytes=new_bytes,
        result_none=result is None,
        gradients=left != gradients,
        accumulates=any(
            new is not None and old is not None and new.id == old.id and new.version > old.version
            for new, old in zip(left, gradients, strict=True)
        ),
        extra_bytes=max(0, after.peak - before.in_use - new_bytes) if before and after else None,
        from_driver=after.from_driver - before.from_driver if before and after else 0,
    )
    del result, arrays, kept, then
    return seen if once else replace(seen, kept_bytes=_kept_bytes(run, adapter))


def opened(result: object, deep: int = 3) -> list[tuple[str, object]]:
    """Returns a pair ("", value) for each value in `result`, also for those in containers, and in
    objects such as the outputs of models. `deep` is the number of containers within each other that
    are opened.
    """
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


def _kept_bytes(run: Callable[[], object], adapter: Adapter) -> int:
    """Makes another call and frees its result. Returns the number of bytes by which the allocated memory has grown."""
    before = adapter.memory()
    if before is None:
        return 0
    adapter.wait(run())
    after = adapter.memory()
    return max(0, after.in_use - before.in_use) if after is not None else 0


def _same(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _zeros(inputs: tuple[Array, ...], values: list[NDArray[np.generic]]) -> tuple[str, ...]:
    """Returns the names of the inputs in which nearly all values are zero, if these inputs have at
    least a quarter of the bytes of all inputs. Returns () if they have less: biases, for example,
    are often zero, and small.
    """
    found = [array for array, value in zip(inputs, values, strict=True) if _all_zero(value)]
    much = sum(array.bytes for array in found) >= _MUCH * sum(array.bytes for array in inputs)
    return tuple(array.name for array in found) if much else ()


def _all_zero(value: NDArray[np.generic]) -> bool:
    return bool(value.size > 1 and value.dtype.kind in "fc" and (value == 0).mean() >= _ALL_ZERO)


def _holding(
    inputs: tuple[Array, ...],
    values: list[NDArray[np.generic]],
    share: Callable[[Array, NDArray[np.generic]], float],
    most: float,
) -> tuple[str, ...]:
    """Returns the names of inputs for which the function `share` returns more than `most`."""
    return tuple(array.name for array, value in zip(inputs, values, strict=True) if share(array, value) > most)


def _subnormal_share(array: Array, value: NDArray[np.generic]) -> float:
    """Returns the share of an array's values that are subnormal in the dtype of the array. `value` has a sample of
    these values, perhaps in a wider dtype.
    """
    if not value.size or value.dtype.kind != "f":
        return 0.0
    kind = str(getattr(array.value, "dtype", value.dtype)).removeprefix("torch.")
    smallest = _SMALLEST_NORMAL.get(kind)
    if smallest is None:
        return 0.0
    size = np.abs(value.astype(np.float64))
    return float(((size > 0) & (size < smallest)).mean())


_SMALLEST_NORMAL = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}


def _nan_share(_: Array, value: NDArray[np.generic]) -> float:
    return float(np.isnan(value).mean()) if value.size and value.dtype.kind in "fc" else 0.0
