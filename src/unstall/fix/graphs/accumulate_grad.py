"""Torch warns where gradients are added up on another stream than they were made on: not of what graphs make it do.

The first calls of a function run on the stream of captures, and for a leaf's gradients there is one node, of the stream
that was current when it was made, for as long as any graph of autograd's holds on to it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from unstall.fix.graphs.autograd_nodes import nodes_behind

_set = getattr(torch._C, "_set_warn_on_accumulate_grad_stream_mismatch", None)
_warns = getattr(torch._C, "_warn_on_accumulate_grad_stream_mismatch", None)
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
    """While a function runs on the stream of captures."""
    _silence()
    try:
        yield
    finally:
        _speak()


class _Lifetime:
    """Of a node."""


def silence_nodes_of(results: Iterable[torch.Tensor]) -> None:
    """No warning for as long as the nodes live that these results made on the stream of captures."""
    for node in nodes_behind(results):
        if hasattr(node, "variable") and "unstall" not in node.metadata:
            node.metadata["unstall"] = lifetime = _Lifetime()
            _silence()
            weakref.finalize(lifetime, _speak).atexit = False
