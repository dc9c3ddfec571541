"""Preserves an uncaught Ctrl-C: code that runs at exit must not change the exit status of the program."""

from __future__ import annotations

import sys
from contextlib import suppress


def remember_interrupt() -> None:
    """Makes Python end by SIGINT if an uncaught KeyboardInterrupt ended the program. Must be the last call of the code
    that runs at exit.

    CPython sets a flag if the code that it last compiled from text ended by KeyboardInterrupt. It reads this flag at
    the very end (`run_eval_code_obj` in Python/pythonrun.c, 3.8 to 3.14). Code that is compiled from text at exit
    clears the flag, for example if an imported module defines a namedtuple or a dataclass. The program would then end
    with exit code 1.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt and _is_of_the_program():
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # the only way to set the flag again


def _is_of_the_program() -> bool:
    """Returns whether the last uncaught exception ended the program. False at an interactive prompt, which continues
    after exceptions."""
    traceback = getattr(sys, "last_traceback", None)
    return traceback is not None and traceback.tb_frame.f_back is None and not hasattr(sys, "ps1")
