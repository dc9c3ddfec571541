"""Detects waits of the host for the device: operators that wait, and calls that only wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload

from unstall.fix.graphs.examine.warnings_raised import always_warning

SYNCHRONIZING = "synchronizing CUDA operation"
"""A phrase in torch's own warnings about waits."""

_HOST_READS = "the host reads a value from the device and waits for it"
_SHAPES = "how large its result is depends on values, so the host waits for them"
_WAITS = {
    "_local_scalar_dense": (_HOST_READS, "return the tensor and read it after the call"),
    "equal": (_HOST_READS, "compare with == and .all() and keep the tensor"),
    "is_nonzero": (_HOST_READS, "use torch.where"),
    "_linalg_check_errors": ("the host waits to check for an error", "use the _ex variant, as torch.linalg.inv_ex"),
    "nonzero": (_SHAPES, "use torch.where(condition, a, b), or torch.nonzero_static"),
    "masked_select": (_SHAPES, "use torch.where(condition, a, b)"),
    "_unique2": (_SHAPES, "do that outside the graph"),
    "unique_dim": (_SHAPES, "do that outside the graph"),
    "unique_consecutive": (_SHAPES, "do that outside the graph"),
    "bincount": (_SHAPES, "use scatter_add_ into a tensor of known size"),
}
_MASKED = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}


def wait_of(name: str, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str] | None:
    """Returns (reason, remedy) if a call of this operator makes the host wait for the device. Returns None if the
    operator's name and arguments show no wait."""
    if name in _WAITS:
        return _WAITS[name]
    if name in _MASKED and any(
        isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    ):
        return _SHAPES, "index with torch.where(mask, a, b) instead of a mask"
    if name == "repeat_interleave" and operator._overloadname == "Tensor" and kwargs.get("output_size") is None:
        return _SHAPES, "give output_size"
    return None


@contextmanager
def waits_named(note: Callable[[], None], device_type: str) -> Iterator[None]:
    """During the block, makes torch warn about waits that are not visible as operators. If this thread calls a function
    that only waits, such as `torch.cuda.synchronize`, the function first calls `note`."""
    if device_type != "cuda":
        yield
        return
    mode = torch.cuda.get_sync_debug_mode()
    homes = ((torch.cuda, "synchronize"), (torch.cuda.Stream, "synchronize"), (torch.cuda.Event, "synchronize"))
    kept = [getattr(home, name) for home, name in homes]
    with always_warning(f".*{SYNCHRONIZING}", beside="Synchronization debug mode is a prototype"):
        try:
            for (home, name), call in zip(homes, kept, strict=True):
                setattr(home, name, _named_wait(note, call))
            with contextlib.suppress(RuntimeError):  # without such warnings, only operators show waits
                torch.cuda.set_sync_debug_mode(mode or "warn")
            yield
        finally:
            with contextlib.suppress(RuntimeError):
                torch.cuda.set_sync_debug_mode(mode)
            for (home, name), call in zip(homes, kept, strict=True):
                setattr(home, name, call)


def _named_wait(note: Callable[[], None], call: Callable[..., Any]) -> Callable[..., Any]:
    thread = threading.get_ident()

    def wait(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            note()
        return call(*args, **kwargs)

    return wait
