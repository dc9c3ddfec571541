"""Preserves an uncaught Ctrl-C: code that runs at exit must not change the exit status of the program."""

from __future__ import annotations

import sys
from contextlib import suppress


def remember_interrupt() -> None:
    """Makes Python end by SIGINT, as it does after any uncaught interrupt. Call it last in the code that runs at exit.

    CPython sets a flag if the last code it compiled from text ended by KeyboardInterrupt (`run_eval_code_obj` in
    Python/pythonrun.c, 3.8 to 3.14), and reads it at the very end. Code from text that runs at exit clears the flag,
    such as that of a namedtuple or dataclass in a module imported then. The program would then end with exit code 1.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt and _is_of_the_program():
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # the only way to set the flag again


def _is_of_the_program() -> bool:
    """Returns whether the last exception has ended the program. At a prompt, which continues after it, it has not."""
    traceback = getattr(sys, "last_traceback", None)
    return traceback is not None and traceback.tb_frame.f_back is None and not hasattr(sys, "ps1")
