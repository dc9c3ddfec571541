"""Ends the program as `sys.exit()` in its main thread would: blocks are left in order, and exit handlers run."""

from __future__ import annotations

import ctypes
import threading

from unstall.guest.threads import start_thread

_A_MOMENT_S = 0.02  # until the hook that asked for this has returned: torch may drop what is raised within it


def end_program(*, here: bool = False) -> None:
    """Ends the program soon, with exit code 0. A program that catches SystemExit goes on.

    `here`: the caller is called by the program's own code, to which SystemExit may be raised at once. Anywhere else it
    might be raised within code of C++ that drops it.
    """
    asking = threading.current_thread()
    if here and asking is threading.main_thread():
        raise SystemExit

    def end() -> None:
        threading.Event().wait(_A_MOMENT_S)  # time.sleep is virtual on a virtual GPU
        main = threading.main_thread()
        for thread in dict.fromkeys((main, asking)):  # the main thread may wait for the one that makes the steps
            if thread.is_alive() and thread.ident is not None and thread.ident != threading.get_ident():
                raising = ctypes.pythonapi.PyThreadState_SetAsyncExc
                raising(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))

    start_thread(end)
