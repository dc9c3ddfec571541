"""Starts unstall's own threads in the program's process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress


def start_thread(run: Callable[[], None]) -> None:
    """Runs `run` in a daemon thread. If Python cannot start a thread, does nothing.

    Python 3.12 starts no thread after the main thread has ended, although other threads of the program may run for
    hours.
    """
    with suppress(RuntimeError):
        threading.Thread(target=run, name="unstall", daemon=True).start()
