"""Ends the program as `sys.exit()` would: `with` and `finally` blocks end in order, and exit handlers run.

SystemExit is raised at a step boundary, in the program's own call of `optimizer.step()`, `next(loader)`, `model(...)`
or `unstall.step()`. Raised anywhere else, SystemExit might cut off a file that the program is writing. If the
program catches SystemExit, it continues.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import NoReturn


def may_end_here() -> bool:
    """Returns whether `end_here` would end the program.

    True in the main thread, and in a thread that the main thread is waiting for in `Thread.join`. In another thread,
    `end_here` would end only that thread. Other threads might then wait forever, for example for batches from that
    thread.
    """
    return threading.current_thread() is threading.main_thread() or _main_thread_joins(threading.current_thread())


def end_here() -> NoReturn:
    """Raises SystemExit with exit code 0. Call this only at a step boundary, and only if `may_end_here` returns
    True."""
    if threading.current_thread() is not threading.main_thread():
        _raise_in_main_thread()  # which gets it once this thread has ended, within `join`
    raise SystemExit


def _main_thread_joins(thread: threading.Thread) -> bool:
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident) if ident is not None else None
    while frame is not None:  # from the innermost outwards
        code = frame.f_code
        if (code.co_name, code.co_filename) == ("join", threading.__file__) and frame.f_locals.get("self") is thread:
            return True
        frame = frame.f_back
    return False


def _raise_in_main_thread() -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(SystemExit))
