"""Decides when a graphed function runs eagerly because other code must observe its operators."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.autograd import forward_ad

_local = threading.local()
_compiles_frames = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
_hooks_on_saved = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


@contextmanager
def graphs_disabled() -> Iterator[None]:
    """Makes graphed functions run eagerly during the block. It is used while a function that may call graphed functions
    is observed or captured."""
    _local.depth = getattr(_local, "depth", 0) + 1
    try:
        yield
    finally:
        _local.depth -= 1


def graphs_are_disabled() -> bool:
    """Returns whether graphed functions must run eagerly, because other code must observe their operators. The other
    code may be a dispatch mode, a transform, a compiler, another capture, forward-mode AD, anomaly detection, or hooks
    on saved tensors (used by checkpointing)."""
    return bool(
        torch.compiler.is_compiling()  # first: a compiler traces this function too, and stops here
        or (_compiles_frames is not None and _compiles_frames() is not None)  # in a graph break
        or getattr(_local, "depth", 0)
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._is_tracing()
        or getattr(forward_ad, "_current_level", -1) >= 0
        or torch.is_anomaly_enabled()
        or (_hooks_on_saved is not None and _hooks_on_saved(True) is not None)
    )
