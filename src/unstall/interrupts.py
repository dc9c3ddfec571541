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
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # the one way to have it noted again
