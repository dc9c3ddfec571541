"""Ends the program as `sys.exit()` would: blocks are left in order, and exit handlers run.

SystemExit is raised at a step boundary, to the program's own call of `optimizer.step()`, `next(loader)`, `model(...)`
or `unstall.step()`. Raised anywhere else, it might cut off a file that the program is writing. A program that catches
SystemExit goes on.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import NoReturn


def may_end_here() -> bool:
    """Returns whether `end_here` would end the program.

    In a thread other than the main one it would only end this thread, for which others may then wait forever, as for a
    thread that fetches batches. The exception is a thread that the main thread joins.
    """
    return threading.current_thread() is threading.main_thread() or _main_thread_joins(threading.current_thread())


def end_here() -> NoReturn:
    """Raises SystemExit, with exit code 0. Only the code of a step boundary may call it, if `may_end_here`."""
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
