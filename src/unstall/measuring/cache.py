"""Sets the state of the caches before each measured call. "cold": the caches are flushed. "hot":
the caches contain data of the call before. "rotate": the caches contain data of a call with other
inputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

from unstall.errors import UsageError
from unstall.measuring.adapters import Adapter, copied
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.measurement import Cache

_LEAST_SETS, _MOST_SETS = 2, 64


class Caching:
    """Calls a function with a defined state of the caches. For each sample, call `before()`, and
    then time `run()`.

    Attributes:
        cache: The cache state: "cold", "hot" or "rotate".
        run: A function that makes the call. If `cache` is "rotate", each call uses another copy of
            the inputs.
    """

    def __init__(self, call: FunctionCall, cache: Cache, adapter: Adapter) -> None:
        """Prepares the state of the caches.

        Args:
            call: The function to call, with its arguments.
            cache: The cache state: "cold", "hot" or "rotate".
            adapter: The adapter for the framework of the arguments.

        Raises:
            UsageError: `cache` is invalid; or it is "cold", and the size of the device's cache is
                not known; or it is "rotate", and the arguments contain no arrays.
        """
        self.cache = cache
        self._adapter = adapter
        self._flush: Callable[[], None] | None = None
        self.same: Callable[[], object] = call.bare()
        """A function that makes the call with the original inputs each time, even if `cache` is "rotate"."""
        self.run: Callable[[], object] = self.same
        if cache == "cold":
            self._flush = adapter.flusher()
            if self._flush is None:
                raise UsageError(f'the size of the cache of {adapter.device_name} is not known: take cache="hot"')
        elif cache == "rotate":
            self.run = self._rotating(call)
        elif cache != "hot":
            raise UsageError(f'cache={cache!r} is none of "cold", "hot" and "rotate"')

    def before(self) -> None:
        """If the cache state is "cold", starts a flush of the cache and does not wait for its end.
        In the other states, does nothing.
        """
        if self._flush is not None:
            self._flush()

    def flushed(self) -> None:
        """If the cache state is "cold", flushes the cache, waits for the flush, and makes
        persisting L2 cache lines normal ones. In the other states, does nothing.
        """
        if self._flush is not None:
            self._flush()
            self._adapter.synchronize()
            if self._adapter.is_cuda and not self._adapter.virtual:
                _give_up_persisting()

    def _rotating(self, call: FunctionCall) -> Callable[[], object]:
        arrays = [self._adapter.array("", value) for value in _arrays((call.args, call.kwargs), self._adapter)]
        size = sum(array.bytes for array in arrays)
        if not size:
            raise UsageError(
                'cache="rotate" takes copies of the inputs by turns, and this function gets none as arguments: '
                'pass them to bench(fn, x, …), or take cache="cold"'
            )
        count = min(_MOST_SETS, max(_LEAST_SETS, -(-2 * self._adapter.cache_bytes // size)))
        sets = [FunctionCall(call.fn, *copied((call.args, dict(call.kwargs)))).bare() for _ in range(count)]
        turn = 0

        def run() -> object:
            nonlocal turn
            turn = (turn + 1) % count
            return sets[turn]()

        return run


def _arrays(value: object, adapter: Adapter) -> list[object]:
    if adapter.holds(value):
        return [value]
    if isinstance(value, dict):
        return [each for inner in value.values() for each in _arrays(inner, adapter)]
    if isinstance(value, list | tuple):
        return [each for inner in value for each in _arrays(inner, adapter)]
    return []


def _give_up_persisting() -> None:
    reset = _reset_call()
    if reset is not None:
        reset()


@lru_cache(maxsize=1)
def _reset_call() -> Callable[[], int] | None:
    try:
        call: Callable[[], int] = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
    except (OSError, AttributeError):
        return None
    return call
