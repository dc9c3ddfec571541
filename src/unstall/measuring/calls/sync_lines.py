"""Finds the lines at which a function waits for the device, by warnings of torch. It is used if
there are no records of the work on the device.
"""

from __future__ import annotations

import sys
import warnings

from unstall.measuring.adapters import Adapter
from unstall.measuring.calls.function_call import FunctionCall

_TEXT = "called a synchronizing CUDA operation"


def sync_lines(call: FunctionCall, adapter: Adapter) -> tuple[str, ...]:
    """Calls the function once. Returns the `file:line` of each wait for the device about which
    torch warns. torch warns about a wait in an operator, but not about `synchronize()`.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not adapter.is_cuda or adapter.virtual or not cuda.is_initialized():
        return ()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = cuda.get_sync_debug_mode()
        cuda.set_sync_debug_mode("warn")
        try:
            adapter.wait(call())
        finally:
            cuda.set_sync_debug_mode(before)
    return tuple(dict.fromkeys(f"{each.filename}:{each.lineno}" for each in seen if _TEXT in str(each.message)))
