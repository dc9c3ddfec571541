"""Threads of our own in the program's process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress


def start_thread(run: Callable[[], None]) -> None:
    """Run this beside the program, which it keeps from nothing; not at all where there can be no thread.

    Python 3.12 begins none any more once the main thread has ended, while others of the program go on for hours.
    """
    with suppress(RuntimeError):
        threading.Thread(target=run, name="unstall", daemon=True).start()
