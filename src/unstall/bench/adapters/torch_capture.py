"""CUDA graphs of a call by torch. The call has then run once, and an attempt that fails leaves nothing behind.

What a capture computes is computed when it is launched. So it is launched once at once, before anything else is given
the memory that the call let go of: whatever the program keeps then holds what a call would have left there.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING of cuda.h: it does not wait for the default stream
_failed: list[Any] = []  # graphs that torch's allocator of pinned memory may go on to ask: they must not be freed


def launched(torch: Any, index: int, graph: Any, run: Callable[[], Any]) -> bool | None:
    """Captures all that `run` puts on the device with index `index`, and launches it once.

    True where it may be launched again: it kept nothing that it made, and let go of nothing that was there. None where
    it cannot be captured: then `run` has begun, and has perhaps not ended.
    """
    pool = torch.cuda.graph_pool_handle()
    in_use: list[int] = []  # before and after: what a capture itself takes, say for generators, is the graph's

    def counted() -> None:
        in_use.append(_in_use(torch, index))
        run()
        in_use.append(_in_use(torch, index))

    if not _captured(torch, index, graph, pool, counted):
        return None
    try:
        graph.replay()
    except RuntimeError:  # there is no memory for it
        graph.reset()
        return None
    try:
        closed = bool(torch._C._cuda_checkPoolLiveAllocations(index, pool, set()))
    except (AttributeError, RuntimeError):  # of an allocator that does not tell
        return False
    return closed and in_use[0] == in_use[1]


def _captured(torch: Any, index: int, graph: Any, pool: Any, run: Callable[[], Any]) -> bool:
    """Not by torch.cuda.graph, which empties the program's cache of memory."""
    stream = _own_stream(torch, index)
    stream.wait_stream(torch.cuda.current_stream(index))
    collects = gc.isenabled()
    gc.disable()  # what it would free may not be freed during a capture
    ended = raised = False
    try:
        with torch.cuda.stream(stream):
            try:
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    with torch.cuda.stream(stream):  # whichever `run` leaves: a capture ends where it began
                        run()
                except BaseException:
                    raised = True
                    raise
                finally:
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", "The CUDA Graph is empty", UserWarning)
                        graph.capture_end()
                    ended = True
            except Exception:
                return False
            finally:
                if not ended:
                    _let_go(torch, index, graph, pool)
                elif raised:
                    graph.reset()
    finally:
        if collects:
            gc.enable()
    return True


def _let_go(torch: Any, index: int, graph: Any, pool: Any) -> None:
    """What a capture that failed leaves behind: a pool that still takes all allocations and is never given back, and
    generators that believe to be captured until a capture ends well."""
    with contextlib.suppress(RuntimeError, AttributeError):
        torch._C._cuda_endAllocateToPool(index, pool)  # refused where the capture's own end came so far
        torch._C._cuda_releasePool(index, pool)
    _failed.append(graph)
    with contextlib.suppress(RuntimeError):
        graph.reset()
        torch.cuda.synchronize(index)
        mends = torch.cuda.CUDAGraph()
        mends.capture_begin(pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
        torch.zeros(1, device=torch.device("cuda", index))
        mends.capture_end()


def _in_use(torch: Any, index: int) -> int:
    return int(torch.cuda.memory_stats(index).get("allocated_bytes.all.current", 0))


@lru_cache(maxsize=16)
def _own_stream(torch: Any, index: int) -> Any:
    """A stream that torch hands out to nobody else, as it does with its own in turn. There is one a device: cuBLAS
    keeps a workspace for each that it was ever used on."""
    handle = ctypes.c_void_p()
    with torch.cuda.device(index):
        torch.cuda.synchronize()  # the device's context is this thread's then
        try:
            made = torch.version.hip is None and not ctypes.CDLL("libcuda.so.1").cuStreamCreate(
                ctypes.byref(handle), _NON_BLOCKING
            )
        except OSError:
            made = False
    return torch.cuda.ExternalStream(handle.value, index) if made else torch.cuda.Stream(index)
