"""Starts threads of unstall in the program's process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress


def start_thread(run: Callable[[], None]) -> None:
    """Calls `run` in a new daemon thread. If Python cannot start a thread, does nothing.

    Python 3.12 cannot start a thread after the main thread has ended. Other threads of the program may still run for
    hours after that.
    """
    with suppress(RuntimeError):
        threading.Thread(target=run, name="unstall", daemon=True).start()
