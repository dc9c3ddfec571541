"""How many ops a CUDA graph holds, as NVIDIA's driver tells: `cuGraphGetNodes` and others of cuda.h, CUDA 10 and on."""

from __future__ import annotations

import ctypes
from typing import Any

_KERNEL, _COPY, _SET = 0, 1, 2  # CUgraphNodeType


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


def _kind(driver: Any, node: int | None) -> int:
    kind = ctypes.c_int(-1)
    driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
    return kind.value
