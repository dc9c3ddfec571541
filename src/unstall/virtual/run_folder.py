"""The folder to which a program writes its run on the virtual GPU, for `unstall run`."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from unstall.errors import UnstallError
from unstall.guest.interrupts import remember_interrupt
from unstall.guest.os_exit import before_os_exit
from unstall.virtual.machine import WatchedSpan

TIMELINE = "run.timeline"
FAILED = "failed.txt"


class RunFolder:
    """Writes the timeline of a watched span into a folder when the process ends. Also writes the timeline if the
    process ends by `os._exit`.
    """

    def __init__(self, watch: WatchedSpan, folder: Path) -> None:
        self._watch = watch
        self._folder = folder
        self._process = os.getpid()
        atexit.register(self._at_exit)
        before_os_exit(self.write)

    def write(self) -> None:
        """Writes the timeline. If the timeline cannot be written, writes the error message. Does not change the way in
        which the program ends.
        """
        if os.getpid() != self._process:
            return
        with _undisturbed():
            self._process = 0
            try:
                self._watch.machine.unwatch(self._watch)
                if self._watch.machine.simulator is not None:
                    self._watch.timeline().save(self._folder / TIMELINE)
            except UnstallError as error:
                self._fail(str(error))
            except Exception as error:
                self._fail(f"{type(error).__name__}: {error}")

    def _at_exit(self) -> None:
        if os.getpid() == self._process:
            self.write()
            remember_interrupt()

    def _fail(self, why: str) -> None:
        if self._folder.exists():
            (self._folder / FAILED).write_text(why, encoding="utf-8")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignores the first Ctrl-C inside the block. The program has already ended, and an exception would lead to the loss
    of the program's timeline. A second Ctrl-C works as usual.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual in (None, signal.SIG_IGN) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ignore(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, usual)
        print("unstall: the run is being kept; Ctrl-C once more gives it up", file=sys.stderr)

    signal.signal(signal.SIGINT, ignore)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
