"""CUDA graphs of a call by torch. The call has then run once.

What a capture computes is computed when it is launched. So it is launched once at once, before anything else is given
the memory that the call let go of: whatever the program keeps then holds what a call would have left there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

from unstall.guest.graph_capture import capture, own_stream

if TYPE_CHECKING:
    import torch

_KERNEL, _COPY, _SET = 0, 1, 2  # CUgraphNodeType


def launched(torch: ModuleType, index: int, graph: torch.cuda.CUDAGraph, run: Callable[[], object]) -> bool | None:
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

    stream = _stream(index)
    stream.wait_stream(torch.cuda.current_stream(index))
    try:
        capture(graph, counted, pool, stream)
    except Exception:
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


def ops_in_a_row(graph: int) -> int | None:
    """Kernels, copies and memsets of a `CUgraph` in which each node follows on one other.

    None where some could run side by side, where it holds anything else, or where the driver does not tell.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, nodes, edges = ctypes.c_void_p(graph), ctypes.c_size_t(), ctypes.c_size_t()
    if driver.cuGraphGetNodes(handle, None, ctypes.byref(nodes)):
        return None
    if not nodes.value:
        return 0  # the driver refuses to fill an array of none
    # What was captured ends in one stream: with one root, and one edge less than nodes, it is a row. The driver's old
    # call is refused where an edge is more than an order, as a programmatic launch's is.
    if driver.cuGraphGetEdges(handle, None, None, ctypes.byref(edges)) or edges.value != nodes.value - 1:
        return None
    roots = ctypes.c_size_t()
    if driver.cuGraphGetRootNodes(handle, None, ctypes.byref(roots)) or roots.value != 1:
        return None
    row = (ctypes.c_void_p * nodes.value)()
    if driver.cuGraphGetNodes(handle, row, ctypes.byref(nodes)):
        return None
    return len(row) if all(_kind(driver, node) in (_KERNEL, _COPY, _SET) for node in row) else None


def _kind(driver: ctypes.CDLL, node: int | None) -> int:
    kind = ctypes.c_int(-1)
    driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
    return kind.value


def _in_use(torch: ModuleType, index: int) -> int:
    return int(torch.cuda.memory_stats(index).get("allocated_bytes.all.current", 0))


@lru_cache(maxsize=16)
def _stream(index: int) -> torch.cuda.Stream:
    """One a device: cuBLAS keeps a workspace for each that it was ever used on."""
    stream: torch.cuda.Stream = own_stream(index)
    return stream
