"""What happens in the program's own process before its first line."""

from __future__ import annotations

import os
import sys

from unstall.recording.journal import Journal
from unstall.recording.recorder import Recorder
from unstall.recording.session import Session
from unstall.recording.settings import Settings
from unstall.recording.window import MakeLineClock, MakeRecorder


def arm(settings: str | None) -> None:
    """Make ready to record this process as `settings` say. If that fails, its journal says why.

    Raises:
        ValueError: `settings` are none.
    """
    wanted = Settings.from_json(settings or "")
    try:
        begin(wanted)
    except Exception as error:
        Journal(wanted.folder).write("failed", why=f"{type(error).__name__}: {error}")


def begin(
    settings: Settings, make_recorder: MakeRecorder | None = None, make_line_clock: MakeLineClock | None = None
) -> None:
    """Arm a session, and open its journal. What records is chosen when the window begins."""
    journal = open_journal(settings)
    if settings.keep_arguments:
        journal.write("arguments", argv=sys.orig_argv, environment=dict(os.environ))
    chosen = Chosen(settings)
    Session(settings, journal, make_recorder or chosen.recorder, make_line_clock or chosen.line_clock).begin()


def open_journal(settings: Settings) -> Journal:
    """A new recording's journal, which begins with whose it is and how it was asked for."""
    journal = Journal(settings.folder)
    journal.write("armed", pid=os.getpid(), folder=os.getcwd(), program=_program())  # noqa: PTH109 - as text
    journal.write("settings", settings=settings.metadata())
    return journal


def _program() -> str:
    """What this process runs, without its arguments, which may hold secrets: a script, or -m and a module."""
    if sys.argv[:1] == ["-m"]:  # which it is until the module has been found
        return f"-m {sys.orig_argv[-len(sys.argv)]}"
    return str(sys.argv[0]) if sys.argv else ""


class Chosen:
    """The recorder and the line clock that settings ask for, imported and made when they are needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lines: Recorder | None = None

    def recorder(self) -> Recorder:
        """A recorder. Raises UnstallError where none works here."""
        from unstall.recording.choose import choose

        recorder, self._lines = choose(self._settings)
        return recorder

    def line_clock(self) -> Recorder | None:
        """The line clock that goes with it, or None."""
        return self._lines
