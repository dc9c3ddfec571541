"""Captures of CUDA graphs by torch. One that fails leaves nothing behind: no pool that takes all allocations, and no
generator of random numbers that believes to be captured.

torch is imported by whoever calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

_T = TypeVar("_T")
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING of cuda.h: it does not wait for the default stream
_failed: list[Any] = []  # graphs that torch's allocator of pinned memory goes on to ask what is captured in them
_broken: set[Any] = set()


def capture(graph: Any, run: Callable[[], _T], pool: Any, stream: Any, generators: Sequence[Any] = ()) -> _T:
    """What `run` returns, whose work on the device is then in `graph` alone, with its memory in `pool`. It runs on
    `stream`, whose device is the current one; other threads may go on meanwhile. Not by torch.cuda.graph, which
    empties the program's cache of memory.

    Raises what `run` raises, and RuntimeError where it does what cannot be captured.
    """
    import torch

    for generator in generators:
        graph.register_generator_state(generator)
    collects = gc.isenabled()
    gc.disable()  # what it would free may not be freed during a capture
    try:
        with torch.cuda.stream(stream):
            try:
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                with torch.cuda.stream(stream):  # whichever `run` leaves: a capture ends where it began
                    result = run()
            except BaseException:
                _abandon(graph, pool, stream, generators)
                raise
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "The CUDA Graph is empty", UserWarning)
                    graph.capture_end()
            except BaseException:
                _let_go(graph, pool, stream, generators)
                raise
    finally:
        if collects:
            gc.enable()
    return result


def is_sound(pool: Any) -> bool:
    """Whether no capture in that pool has failed in such a way that it takes no other."""
    return pool not in _broken


def _abandon(graph: Any, pool: Any, stream: Any, generators: Sequence[Any]) -> None:
    """Ends a capture that did not begin, or whose function raised; the driver may have ended it already."""
    try:
        graph.capture_end()
    except RuntimeError:
        _let_go(graph, pool, stream, generators)
    else:
        graph.reset()


def _let_go(graph: Any, pool: Any, stream: Any, generators: Sequence[Any]) -> None:
    """What a capture that failed leaves behind: a pool that takes no other capture, still takes all allocations, and is
    never given back; and generators that believe to be captured until a capture ends well. Their states stay the same
    objects, which earlier graphs draw from."""
    import torch

    index = stream.device.index
    _failed.append(graph)
    _broken.add(pool)
    with contextlib.suppress(RuntimeError, AttributeError):
        torch._C._cuda_endAllocateToPool(index, pool)  # refused where the capture's own end came so far
        torch._C._cuda_releasePool(index, pool)
    with contextlib.suppress(RuntimeError):
        torch.cuda.synchronize(index)
        sound = torch.cuda.CUDAGraph()
        for generator in generators:
            sound.register_generator_state(generator)
        with torch.cuda.stream(stream):
            sound.capture_begin(pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
            torch.zeros(1, device=stream.device)
            sound.capture_end()


def own_stream(index: int) -> Any:
    """A stream that torch hands out to nobody else, as it does with its own in turn."""
    import torch

    driver = nvidia_driver()
    handle = ctypes.c_void_p()
    with torch.cuda.device(index):
        torch.cuda.synchronize()  # the device's context is this thread's then
        made = driver is not None and driver.cuStreamCreate(ctypes.byref(handle), _NON_BLOCKING) == 0
    return torch.cuda.ExternalStream(handle.value, index) if made else torch.cuda.Stream(index)


@lru_cache(maxsize=1)
def nvidia_driver() -> Any:
    """NVIDIA's driver, where torch runs on it; None where there is none to ask."""
    import torch

    if torch.version.hip is not None or getattr(torch.version, "cuda", None) is None:
        return None
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
