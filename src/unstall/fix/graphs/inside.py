"""Where a graphed function is to run as it is, since something else looks at its operators."""

from __future__ import annotations

import threading

import torch
from torch.autograd import forward_ad

_local = threading.local()
_compiles_frames = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
_hooks_on_saved = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


class inside:  # noqa: N801 - used as a context manager
    """A function that is being observed or captured may call another graphed one, which then runs as it is."""

    def __enter__(self) -> None:
        _local.depth = getattr(_local, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        _local.depth -= 1


def is_inside() -> bool:
    """Whether something else is to see the operators themselves: a mode, a transform, a compiler, another capture,
    forward-mode AD, a search for the operator that gave a NaN, or hooks on what autograd saves, as those of
    checkpoints."""
    return bool(
        torch.compiler.is_compiling()  # first: it traces this too, and then the others are not asked
        or (_compiles_frames is not None and _compiles_frames() is not None)  # what it left out, between its parts
        or getattr(_local, "depth", 0)
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.jit.is_tracing()
        or getattr(forward_ad, "_current_level", -1) >= 0
        or torch.is_anomaly_enabled()
        or (_hooks_on_saved is not None and _hooks_on_saved(True) is not None)
    )
