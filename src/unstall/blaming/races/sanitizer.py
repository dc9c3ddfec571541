"""Whether torch's stream sanitizer is what races are built on: it is private, and may change with torch."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_TOLD = (
    *("event_creation", "event_deletion", "event_record", "event_wait", "memory_allocation", "memory_deallocation"),
    *("stream_creation", "device_synchronization", "stream_synchronization", "event_synchronization"),
)
_MODEL = ("host_sync_state", "update_seq_num", "is_ordered_after")


def why_not() -> str | None:
    """Returns what races need and this torch has not, or None if it has all."""
    torch = sys.modules["torch"]
    if not hasattr(torch._C, "_activate_gpu_trace"):
        return _lacks("torch._C._activate_gpu_trace")
    try:
        sanitizer, trace = _import()
    except ImportError as error:
        return _lacks(str(error.name or error))
    for name in _TOLD:
        if not hasattr(trace, f"register_callback_for_{name}"):
            return _lacks(f"torch.cuda._gpu_trace.register_callback_for_{name}")
        if not hasattr(getattr(sanitizer, "EventHandler", None), f"_handle_{name}"):
            return _lacks(f"torch.cuda._sanitizer.EventHandler._handle_{name}")
    model = getattr(sanitizer.EventHandler(), "syncs", None)
    missing = [name for name in _MODEL if not hasattr(model, name)]
    return _lacks(f"torch.cuda._sanitizer.EventHandler().syncs.{missing[0]}") if missing else None


def listen(handler: Any) -> None:
    """Lets torch tell the handler of events, waits and memory from now on. It cannot be undone in a process."""
    _, trace = _import()
    for name in _TOLD:
        getattr(trace, f"register_callback_for_{name}")(getattr(handler, f"_handle_{name}"))
    sys.modules["torch"]._C._activate_gpu_trace()


def _import() -> tuple[ModuleType, ModuleType]:
    """Imports torch's sanitizer, without the handler that this adds: it would keep a stack of each allocation."""
    trace = importlib.import_module("torch.cuda._gpu_trace")
    own = "torch.cuda._sanitizer" in sys.modules
    lists = [found.callback_list for found in vars(trace).values() if hasattr(found, "callback_list")]
    before = [list(each) for each in lists]
    sanitizer = importlib.import_module("torch.cuda._sanitizer")
    if not own:
        for callbacks, kept in zip(lists, before, strict=True):
            callbacks[:] = kept
    return sanitizer, trace


def _lacks(name: str) -> str:
    torch = sys.modules["torch"]
    return f"races cannot be looked for with torch {torch.__version__}: it has no {name}"
