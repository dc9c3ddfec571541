"""Starts and stops the recorders for the few steps that are recorded (the recording window). Also
writes to the journal (the recording's file of events) which machine and software the program uses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

from unstall.errors import UnstallError
from unstall.guest import device
from unstall.guest.os_exit import before_os_exit
from unstall.recording.journal import Journal
from unstall.recording.recorder import Recorder

MakeRecorder = Callable[[], Recorder]
MakeLineClock = Callable[[], Recorder | None]


class RecordedWindow:
    """Starts and stops a recorder, together with a line clock (which records which source lines
    run) if there is one.
    """

    def __init__(self, journal: Journal, recorder: Recorder, lines: Recorder | None) -> None:
        self._journal = journal
        self._recorder = recorder
        self._lines = lines
        self._undo = ExitStack()
        self._wait: Callable[[], None] = device.synchronize
        self.any_thread = recorder.any_thread and (lines is None or lines.any_thread)
        self._thread = threading.current_thread()

    @property
    def name(self) -> str:
        """The name of the recorder."""
        return self._recorder.name

    @property
    def may_stop_here(self) -> bool:
        """Whether the calling thread may stop the recording.

        If the recorder is bound to the thread that started it, no other thread may stop the
        recording while that thread lives.
        """
        return self.any_thread or threading.current_thread() is self._thread or not self._thread.is_alive()

    def start(self) -> None:
        """Starts the line clock and the recorder. If one of them fails to start, stops the other
        and raises the error.
        """
        self._thread = threading.current_thread()
        self._journal.write("machine", facts=device.machine())
        self._observe("before")
        with ExitStack() as undo:
            if self._lines is not None:
                self._lines.start()
                undo.callback(self._lines.stop)
            self._recorder.start()
            undo.callback(self._recorder.stop)
            undo.callback(lambda: self._wait())
            undo.callback(before_os_exit(self._cut_short))
            self._journal.write(
                "window",
                recorder=self._recorder.name,
                lines=getattr(self._lines, "name", None),
                stacks=getattr(self._recorder, "stacks", False),
                instead=getattr(self._recorder, "instead", None),
            )
            self._undo = undo.pop_all()

    def warmed_up(self) -> None:
        """Writes descriptions of the source lines that ran so far. Call it after the warm-up step.

        Without this call, the descriptions would be written half a second later, and lengthen a
        recorded step by milliseconds.
        """
        if self._lines is not None:
            with suppress(OSError):  # the disk may be full now but not at the end
                self._lines.flush()

    def stop(self, wait: Callable[[], None] = device.synchronize) -> None:
        """Calls `wait()` to wait for the device, then stops the recorder and the line clock.

        If one of these actions fails, the remaining actions are still done.
        """
        self._wait = wait
        self._undo.close()
        with suppress(Exception):
            self._journal.write("machine", facts=device.machine())  # it may have begun before torch was ready
        self._observe("after")
        for recorder in filter(None, (self._recorder, self._lines)):
            self._journal.write("facts", of=recorder.name, facts=recorder.facts())

    def forked(self) -> None:
        """Stops the recording in a forked child process. Does not use files or the device."""
        self._undo.pop_all()
        for recorder in filter(None, (self._recorder, self._lines)):
            with suppress(Exception):
                recorder.forked()

    def _cut_short(self) -> None:
        self._recorder.flush()
        if self._lines is not None:
            self._lines.flush()
        self._journal.write("cut", why="os._exit")

    def _observe(self, which: str) -> None:
        with suppress(Exception):
            self._journal.write("memory", which=which, counters=device.memory())
        with suppress(Exception):
            from unstall.recording.clocks import read_clocks

            self._journal.write("clocks", which=which, devices=read_clocks())


def give_up(window: RecordedWindow | None, journal: Journal, error: Exception) -> None:
    """Stops the recording if it has begun, and writes `error` to the journal (the recording's file
    of events) as the reason. Never raises.
    """
    if window is not None:
        with suppress(Exception):
            window.stop(lambda: None)
    why = str(error) if isinstance(error, UnstallError) else f"{type(error).__name__}: {error}"
    with suppress(Exception):
        journal.write("failed", why=why)
