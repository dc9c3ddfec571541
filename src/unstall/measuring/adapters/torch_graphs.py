"""Captures a call as a CUDA graph with torch, and launches the graph once.

During a capture, the device computes nothing. The device computes when the graph is launched. So the graph is launched
right after the capture, before the memory that the call freed is reused. After the launch, the program's memory has the
same contents as after a normal call.
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
    """Captures the work of `run` as a CUDA graph on the device with the index `index`, and launches
    the graph once.

    Returns True if the graph may be launched again. This is the case if `run` freed all memory that
    it allocated, and freed no other memory. Returns False if `run` did something else with memory,
    or if this is not known. Returns None if the capture or the launch failed. If the capture
    failed, `run` may have stopped halfway.

    Args:
        torch: The module torch.
        index: The index of the device.
        graph: An empty CUDA graph, into which the work is captured.
        run: The function whose work is captured.
    """
    pool = torch.cuda.graph_pool_handle()
    in_use: list[int] = []  # bytes before and after `run`, inside the capture, which itself allocates some

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
    except RuntimeError:  # out of memory
        graph.reset()
        return None
    try:
        closed = bool(torch._C._cuda_checkPoolLiveAllocations(index, pool, set()))
    except (AttributeError, RuntimeError):  # the allocator cannot tell
        return False
    return closed and in_use[0] == in_use[1]


def ops_in_a_row(graph: int) -> int | None:
    """Returns the number of kernels, copies and memsets of a `CUgraph`, if the nodes of the graph form one chain.
    `graph` is the address of the `CUgraph`.

    Returns None if some nodes could overlap, if the graph has nodes that are not kernels, copies or memsets, or if the
    driver does not support the queries.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, nodes, edges = ctypes.c_void_p(graph), ctypes.c_size_t(), ctypes.c_size_t()
    if driver.cuGraphGetNodes(handle, None, ctypes.byref(nodes)):
        return None
    if not nodes.value:
        return 0  # the driver refuses to fill an empty array
    # A capture ends in one stream. So with one root, and one edge fewer than nodes, it is a chain. This older driver
    # call fails if an edge carries data, as with programmatic launches.
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
    """Returns a side stream of the device with the index `index`. All calls return the same stream,
    because cuBLAS keeps a workspace for every stream on which it was used.
    """
    stream: torch.cuda.Stream = own_stream(index)
    return stream
