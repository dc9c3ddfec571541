"""Uses torch's CUDA sanitizer, which reports streams and memory.

The sanitizer is a private part of torch. This module checks that the sanitizer has all functions that are used here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_TOLD = (
    *("event_creation", "event_deletion", "event_record", "event_wait", "memory_allocation", "memory_deallocation"),
    *("stream_creation", "device_synchronization", "stream_synchronization", "event_synchronization"),
)
_MODEL = (
    *("host_sync_state", "update_seq_num", "is_ordered_after", "all_streams_wait_for_stream"),
    *("record_state", "stream_wait_for_event"),
)


def why_not() -> str | None:
    """Returns why races cannot be found with this version of torch; None if they can be found."""
    torch = sys.modules["torch"]
    for name in ("_activate_gpu_trace", "_cuda_getCurrentRawStream", "_current_graph_task_id"):
        if not hasattr(getattr(torch, "_C", None), name):
            return _lacks(f"torch._C.{name}")
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


def listen(callback: Callable[[str], Callable[..., object]]) -> Callable[[], None]:
    """Registers handlers for what torch's GPU trace reports: streams, events, waits and memory.

    For each kind of report, torch's CUDA sanitizer has a method, such as `_handle_event_record`.

    Args:
        callback: A function that takes the name of such a method. It returns the function to call
            at each report of this kind.

    Returns:
        A function that removes all registered handlers.
    """
    sanitizer, trace = _import()
    put_back = _set_aside(sanitizer, trace)
    before = [(each, list(each)) for each in _lists(trace)]
    for name in _TOLD:
        getattr(trace, f"register_callback_for_{name}")(callback(f"_handle_{name}"))
    sys.modules["torch"]._C._activate_gpu_trace()
    added = [(each, [one for one in each if one not in known]) for each, known in before]

    def end() -> None:
        for callbacks, ours in added:
            callbacks[:] = [one for one in callbacks if one not in ours]
        put_back()

    return end


def _import() -> tuple[ModuleType, ModuleType]:
    """Imports torch's sanitizer. If this is the first import, the sanitizer's own handler stays switched off."""
    is_new = "torch.cuda._sanitizer" not in sys.modules
    trace = importlib.import_module("torch.cuda._gpu_trace")
    sanitizer = importlib.import_module("torch.cuda._sanitizer")
    if is_new:
        _set_aside(sanitizer, trace)
    return sanitizer, trace


def _set_aside(sanitizer: ModuleType, trace: ModuleType) -> Callable[[], None]:
    """Removes the sanitizer's own handler from torch's callbacks, unless the sanitizer is enabled.

    This handler stores a stack for each allocation. If the program enables the sanitizer later, the handler is put
    back. Returns a function that puts the handler back.
    """
    whole: Any = getattr(sanitizer, "cuda_sanitizer", None)
    own = getattr(getattr(whole, "dispatch", None), "event_handler", None)
    if own is None or getattr(whole, "enabled", True) or not hasattr(whole, "enable"):
        return lambda: None
    aside = [(each, [one for one in each if getattr(one, "__self__", None) is own]) for each in _lists(trace)]
    if not any(its for _, its in aside):
        return lambda: None
    for callbacks, its in aside:
        callbacks[:] = [one for one in callbacks if one not in its]

    def put_back() -> None:
        if vars(whole).pop("enable", None) is not None:
            for callbacks, its in aside:
                callbacks[:0] = its

    def enable() -> None:
        put_back()
        whole.enable()

    whole.enable = enable
    return put_back


def _lists(trace: ModuleType) -> list[list[object]]:
    return [found.callback_list for found in vars(trace).values() if hasattr(found, "callback_list")]


def _lacks(name: str) -> str:
    torch = sys.modules["torch"]
    return f"races cannot be looked for with torch {torch.__version__}: it has no {name}"
