"""Hides torch's warning about AccumulateGrad nodes that belong to the capture stream, and finds these nodes. The
capture stream is the stream on which `graphed` captures CUDA graphs.

The first calls of a graphed function run on the capture stream. A leaf of autograd has one AccumulateGrad node. The
node belongs to the stream that was current when the node was made, and lives as long as an autograd graph refers to it.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from unstall.fix.graphs.autograd.nodes import is_leaf, nodes_behind

_set = getattr(torch._C, "_set_warn_on_accumulate_grad_stream_mismatch", None)
_warns = getattr(torch._C, "_warn_on_accumulate_grad_stream_mismatch", None)
_metadata_of = operator.attrgetter("metadata")  # a property, which torch's types call a method
_MARK, _OLDER = "unstall", "unstall: older"
_lock = threading.RLock()  # a node may die, and be counted, at any allocation
_silent = 0
_before = True


def _silence() -> None:
    global _silent, _before
    with _lock:
        if not _silent and _set is not None and _warns is not None:
            _before = bool(_warns())
            _set(False)
        _silent += 1


def _speak() -> None:
    global _silent
    with _lock:
        _silent -= 1
        if not _silent and _set is not None and _warns is not None:
            _set(_before)


@contextmanager
def no_stream_warnings() -> Iterator[None]:
    """Hides torch's warning about AccumulateGrad nodes of another stream during the block. In the block, a function
    runs on the capture stream: the stream on which `graphed` captures CUDA graphs."""
    _silence()
    try:
        yield
    finally:
        _speak()


def note_living_nodes(tensors: Iterable[torch.Tensor]) -> None:
    """Notes which AccumulateGrad nodes the leaves among `tensors` already have. These nodes were made on another
    stream than the capture stream: the stream on which `graphed` captures CUDA graphs.

    It is called before a function runs on the capture stream.
    """
    for leaf in tensors:
        if leaf.requires_grad and is_leaf(leaf) and not leaf.is_inference():
            metadata = _metadata_of(_node_of(leaf))
            if _MARK not in metadata:
                metadata[_OLDER] = None  # vanishes with the node, if nothing else holds the node


def is_of_capture_stream(tensors: Iterable[torch.Tensor]) -> bool:
    """Returns whether the first leaf among `tensors` has an AccumulateGrad node that was made on the capture stream:
    the stream on which `graphed` captures CUDA graphs."""
    if not _silent:  # no such node lives
        return False
    leaf = next((tensor for tensor in tensors if is_leaf(tensor)), None)
    if leaf is None:
        return False
    metadata = _metadata_of(_node_of(leaf))
    return _MARK in metadata and _OLDER not in metadata


def _node_of(leaf: torch.Tensor) -> torch.autograd.graph.Node:
    with torch.inference_mode(False):  # within it, torch finds no node
        return torch.autograd.graph.get_gradient_edge(leaf).node


class _Lifetime:
    """An object in the metadata of an autograd node. Python frees this object together with the node."""


def silence_nodes_of(results: Iterable[torch.Tensor]) -> None:
    """Hides torch's warning about AccumulateGrad nodes of another stream, until all AccumulateGrad nodes that `results`
    depend on have been freed."""
    for node in nodes_behind(results):
        if not hasattr(node, "variable"):
            continue
        metadata: dict[str, object] = _metadata_of(node)
        if _MARK not in metadata:
            metadata[_MARK] = lifetime = _Lifetime()
            _silence()
            weakref.finalize(lifetime, _speak).atexit = False
