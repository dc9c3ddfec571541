"""Preserves the exit status of a program that ended by an uncaught Ctrl-C. Code that runs at exit must not change this
status."""

from __future__ import annotations

import sys
from contextlib import suppress


def remember_interrupt() -> None:
    """If an uncaught KeyboardInterrupt ended the program, makes the process end by SIGINT. This must be the last call
    in the code that runs at exit.

    Suppose that CPython compiles code from text and runs it. If KeyboardInterrupt ends this code, CPython sets a flag;
    otherwise it clears the flag. CPython reads the flag when the process ends (`run_eval_code_obj` in
    Python/pythonrun.c, 3.8 to 3.14). Code that runs at exit may clear the flag. For example, the code at exit may
    import a module that defines a namedtuple or a dataclass. Python then compiles code from text. The program would
    then end with exit code 1.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt and _is_of_the_program():
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # the only way to set the flag again


def _is_of_the_program() -> bool:
    """Returns whether the last uncaught exception ended the program. Returns False at an interactive prompt, because a
    prompt continues after an exception."""
    traceback = getattr(sys, "last_traceback", None)
    return traceback is not None and traceback.tb_frame.f_back is None and not hasattr(sys, "ps1")
