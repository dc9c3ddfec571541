"""What a process with a virtual GPU has imported before the program's first line."""

from __future__ import annotations

import sys

from processes import succeeded


def test_numpy_is_left_to_the_program() -> None:
    """A module of the program's folder may hide it, and a program may set filters of warnings before it."""
    done = succeeded([sys.executable, "-c", "import sys, unstall.virtual.machine; print('numpy' in sys.modules)"])
    assert done.stdout == "False\n"
