"""Ends the program as `sys.exit()` would: `with` blocks end and `finally` blocks run, innermost first. Then exit
handlers run.

SystemExit is raised at a step boundary, inside the program's call of `optimizer.step()`, `next(loader)`, `model(...)`
or `unstall.step()`. Outside of these calls, SystemExit might interrupt the program while the program writes a file. If
the program catches SystemExit, the program continues.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import NoReturn

# A prototype of our own: all libraries share the attributes of ctypes.pythonapi, and may set other types on them.
_raise_in_thread = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


def may_end_here() -> bool:
    """Returns whether `end_here` would end the program.

    Returns True in the main thread, and in a thread for which the main thread is waiting in `Thread.join`. In any other
    thread, `end_here` would end only this thread. Other threads might then wait forever, for example for batches from
    the ended thread.
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
    _raise_in_thread(ident, SystemExit)
