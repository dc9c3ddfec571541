"""Captures CUDA graphs with torch. Cleans up after a failed capture. Without the cleanup, the capture's memory pool
would serve all later allocations, and the random number generators would stay in capture mode.

The caller must have imported torch.
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
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING of cuda.h: does not wait for the default stream
_failed: list[Any] = []  # torch's pinned allocator still queries these graphs for their captures
_broken: set[Any] = set()


def capture(graph: Any, run: Callable[[], _T], pool: Any, stream: Any, generators: Sequence[Any] = ()) -> _T:
    """Captures the device work of `run` into a CUDA graph. Returns the result of `run`.

    `run` is called on `stream`, on the current device. Other threads may use the device during the capture.
    torch.cuda.graph is not used, because it empties the cache of the caching allocator.

    Args:
        graph: An empty `torch.cuda.CUDAGraph`.
        run: The function whose work on the device is captured.
        pool: The handle of the memory pool in which the graph's tensors are allocated.
        stream: The stream to capture on.
        generators: The device's random number generators that `run` may use.

    Raises:
        RuntimeError: `run` does something that cannot be captured. Exceptions of `run` are raised unchanged.
    """
    import torch

    for generator in generators:
        graph.register_generator_state(generator)
    collects = gc.isenabled()
    gc.disable()  # a collection may free what must not be freed during a capture
    try:
        with torch.cuda.stream(stream):
            try:
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                with torch.cuda.stream(stream):  # even if `run` changes the stream: a capture must end on its own
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
    """Returns whether `pool`, a memory pool of CUDA graphs, can still be used for captures. A failed capture may have
    made the pool unusable."""
    return pool not in _broken


def _abandon(graph: Any, pool: Any, stream: Any, generators: Sequence[Any]) -> None:
    """Ends a capture after `run` raised an exception, or after the start of the capture failed. The driver may have
    ended the capture already."""
    try:
        graph.capture_end()
    except RuntimeError:
        _let_go(graph, pool, stream, generators)
    else:
        graph.reset()


def _let_go(graph: Any, pool: Any, stream: Any, generators: Sequence[Any]) -> None:
    """Cleans up after a capture that failed.

    Without this cleanup, the graph's memory pool could not be used for another capture. The pool would also serve all
    later allocations, and would never be freed. The random number generators would stay in capture mode until a capture
    that uses the generators succeeds. So this function captures a small graph that uses the generators. The function
    does not replace the state objects of the generators, because earlier graphs use these objects.
    """
    import torch

    index = stream.device.index
    _failed.append(graph)
    _broken.add(pool)
    with contextlib.suppress(RuntimeError, AttributeError):
        torch._C._cuda_endAllocateToPool(index, pool)  # fails if the capture's own end came this far
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
    """Creates a stream by a call of NVIDIA's driver, and returns the stream. Only unstall uses this stream. If the
    driver cannot create a stream, returns a stream from torch's pool, which other code may also use."""
    import torch

    driver = nvidia_driver()
    handle = ctypes.c_void_p()
    with torch.cuda.device(index):
        torch.cuda.synchronize()  # makes the device's context current on this thread
        made = driver is not None and driver.cuStreamCreate(ctypes.byref(handle), _NON_BLOCKING) == 0
    return torch.cuda.ExternalStream(handle.value, index) if made else torch.cuda.Stream(index)


@lru_cache(maxsize=1)
def nvidia_driver() -> Any:
    """Loads the library of NVIDIA's driver. Returns None if torch does not use CUDA or the library cannot be loaded."""
    import torch

    if torch.version.hip is not None or getattr(torch.version, "cuda", None) is None:
        return None
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
