"""Threads of our own: none keeps the program from anything."""

from __future__ import annotations

import subprocess
import sys
import threading

from unstall.guest.threads import start_thread


def test_a_thread_of_ours_is_a_daemon() -> None:
    seen: list[threading.Thread] = []
    over = threading.Event()

    def run() -> None:
        seen.append(threading.current_thread())
        over.set()

    start_thread(run)
    assert over.wait(5)
    assert (seen[0].name, seen[0].daemon) == ("unstall", True)


_AFTER_THE_MAIN_THREAD = """\
import threading
from unstall.guest.threads import start_thread

def train():
    threading.main_thread().join()
    start_thread(lambda: None)
    print("trained")

threading.Thread(target=train).start()
"""


def test_a_program_whose_main_thread_has_ended_goes_on() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _AFTER_THE_MAIN_THREAD], capture_output=True, text=True, check=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("trained\n", "")
