"""A Ctrl-C that nobody caught, through what is done as the program exits."""

from __future__ import annotations

import sys
from contextlib import suppress


def remember_interrupt() -> None:
    """Have Python end by SIGINT, as after every interrupt that nobody caught: to be called last in what runs at exit.

    CPython notes that the last code it compiled from text ended by KeyboardInterrupt (`run_eval_code_obj` in
    Python/pythonrun.c, 3.8 to 3.14), and looks at the note once all else is done. Text that is run at exit clears it,
    such as a namedtuple's or a dataclass's of a module imported then: the program would end with exit code 1.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt and _is_of_the_program():
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # the one way to have it noted again


def _is_of_the_program() -> bool:
    """Whether what was raised last has left the program, and is not that of a prompt, which went on after it."""
    traceback = getattr(sys, "last_traceback", None)
    return traceback is not None and traceback.tb_frame.f_back is None and not hasattr(sys, "ps1")
