"""Writes what a program did on the virtual GPU to a folder when the process ends. `unstall run` reads it there."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from unstall.errors import UnstallError
from unstall.guest.imports import when_imported
from unstall.guest.interrupts import remember_interrupt
from unstall.guest.os_exit import before_os_exit
from unstall.virtual.machine import WatchedSpan
from unstall.virtual.run_place import RunPlace


class RunFolder:
    """Writes the timeline of a span when the process ends. This includes an end by `os._exit`, and
    by a signal that the program does not handle, such as SIGTERM.
    """

    def __init__(self, watch: WatchedSpan, place: RunPlace) -> None:
        self._watch = watch
        self._place = place
        self._process = os.getpid()
        self._writing = threading.RLock()
        atexit.register(self._at_exit)
        before_os_exit(self.write)
        when_imported("torch", lambda: watch.machine.keep_at_termination(self._at_termination))

    def write(self) -> None:
        """Ends the span and writes its timeline. Does so only once, and only in the process that
        created this object. If writing fails, writes the error message instead, and raises nothing.
        """
        if os.getpid() != self._process:
            return
        with self._writing, _undisturbed():
            if not self._process:
                return
            self._process = 0
            try:
                self._watch.machine.unwatch(self._watch)
                if self._watch.machine.simulator is not None:
                    self._store()
            except UnstallError as error:
                self._fail(str(error))
            except Exception as error:
                self._fail(f"{type(error).__name__}: {error}")

    def _at_exit(self) -> None:
        if os.getpid() == self._process:
            self.write()
            remember_interrupt()

    def _at_termination(self) -> None:
        """Writes the timeline right before a signal ends the process. If another thread is writing
        it already, waits until that is done. What other threads of the program do meanwhile is not
        in the timeline.
        """
        self.write()
        with self._writing:
            pass

    def _store(self) -> None:
        """Writes the timeline to the folder of the run. If that fails, for example because the disk
        is full, writes it to the file in memory (`RunPlace.spare`), if there is one.
        """
        timeline = self._watch.timeline()
        try:
            timeline.save(self._place.timeline)
        except UnstallError:
            if self._place.spare is None:
                raise
            from unstall.timeline.store import packed

            with Path(self._place.spare).open("wb") as file:
                file.write(packed(timeline))

    def _fail(self, why: str) -> None:
        with suppress(OSError):
            self._place.failed.write_text(why, encoding="utf-8")
            return
        print(f"unstall: the run cannot be kept: {why}", file=sys.stderr)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignores the first Ctrl-C inside a block, so that writing the timeline is not interrupted. A
    second Ctrl-C works as usual.
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
