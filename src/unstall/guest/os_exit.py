"""Calls a function before the program ends by `os._exit`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from unstall.guest.patching import wrap


def before_os_exit(act: Callable[[], object]) -> Callable[[], None]:
    """Makes `os._exit` call `act` before it ends the process. Forked children of this process do not call `act`. If
    `act` raises an exception, the exception is ignored.

    `os._exit` is also replaced in the module that defines it (`posix` or `nt`). So pickle stores the replacement by
    name, and a process that loads it gets its own `os._exit`.

    Returns a function that restores `os._exit`.
    """
    process, original = os.getpid(), os._exit
    home: Any = sys.modules[original.__module__]

    def leave(exit_now: Callable[..., NoReturn], *args: Any, **kwargs: Any) -> NoReturn:
        if os.getpid() == process and len(args) + len(kwargs) == 1:  # otherwise the call raises TypeError
            with suppress(Exception):
                act()
        exit_now(*args, **kwargs)

    undo = wrap(os, "_exit", leave)
    replacement = os._exit
    if home is not os:
        home._exit = replacement

    def restore() -> None:
        undo()
        if home is not os and home._exit is replacement:
            home._exit = original

    return restore
