"""Code that runs in a recorded program's process before the program's first line."""

from __future__ import annotations

import os
import sys
import time

from unstall.recording.first_steps import FirstSteps, settings_of, stand_in_settings_of
from unstall.recording.journal import Journal
from unstall.recording.recorder import Recorder
from unstall.recording.session import Session
from unstall.recording.settings import Settings
from unstall.recording.window import MakeLineClock, MakeRecorder


def arm(settings: str | None) -> None:
    """Prepares to record this process. If this fails, the recording's journal (its file of events)
    says why.

    Args:
        settings: A `Settings` of the recording, as JSON. None if there is none.

    Raises:
        ValueError: `settings` are invalid.
    """
    wanted = Settings.from_json(settings or "")
    try:
        begin(wanted)
    except Exception as error:
        Journal(wanted.folder).write("failed", why=f"{type(error).__name__}: {error}")


def begin(
    settings: Settings, make_recorder: MakeRecorder | None = None, make_line_clock: MakeLineClock | None = None
) -> None:
    """Opens the journal (the file with the events of the recording), and starts a session, which
    waits for the program's steps and then records some of them.

    Args:
        settings: The settings of the recording.
        make_recorder: Makes the recorder when the recording begins. If None, `settings` choose the
            recorder.
        make_line_clock: Makes the line clock, which records which source lines run, when the
            recording begins. If None, `settings` choose the line clock.
    """
    journal = open_journal(settings)
    if settings.keep_arguments:
        journal.write("arguments", argv=sys.orig_argv, environment=dict(os.environ))
    chosen = Chosen(settings)
    first_steps = None if make_recorder else first_steps_for(settings)
    make = make_recorder or chosen.recorder, make_line_clock or chosen.line_clock
    Session(settings, journal, *make, first_steps=first_steps).begin()


def first_steps_for(settings: Settings) -> FirstSteps:
    """Returns an object that can record the program's first steps, with the recorder that `settings` choose."""
    stand_in = _first_steps(stand_in_settings_of(settings)) if settings.by_torch else None
    return _first_steps(settings_of(settings), stand_in)


def _first_steps(settings: Settings, stand_in: FirstSteps | None = None) -> FirstSteps:
    chosen = Chosen(settings)
    return FirstSteps(settings, open_journal, chosen.recorder, chosen.line_clock, stand_in=stand_in)


def open_journal(settings: Settings) -> Journal:
    """Opens the journal of a new recording (the file with its events), and returns it. The first
    events describe the process and the settings.
    """
    journal = Journal(settings.folder)
    folder = os.getcwd()  # noqa: PTH109 - as text
    journal.write("armed", pid=os.getpid(), folder=folder, program=_program(), began_s=time.time())
    journal.write("settings", settings=settings.metadata())
    return journal


def _program() -> str:
    """Returns the script that this process runs, or its module as "-m NAME".

    Omits the arguments, which may hold secrets.
    """
    if sys.argv[:1] == ["-m"]:  # until Python has found the module
        return f"-m {sys.orig_argv[-len(sys.argv)]}"
    return str(sys.argv[0]) if sys.argv else ""


class Chosen:
    """Makes the recorder that the settings choose, and the line clock, which records which source
    lines run. Both are imported only when they are made.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lines: Recorder | None = None

    def recorder(self) -> Recorder:
        """Returns the recorder that the settings choose.

        Raises:
            UnstallError: No recorder works in this process.
        """
        from unstall.recording.choose import choose

        recorder, self._lines = choose(self._settings)
        return recorder

    def line_clock(self) -> Recorder | None:
        """Returns the line clock that goes with the recorder that `recorder()` returned. Returns
        None if this recorder needs none. A line clock records which source lines run.
        """
        return self._lines
