"""Which recorder and which line clock: what the settings ask for, else the cheapest that works here."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from unstall.cupti.call_stacks import CallStacks, unavailable
from unstall.cupti.recorder import Cupti
from unstall.errors import UnstallError
from unstall.frameworks import is_framework
from unstall.lines.clock import LineClock, available
from unstall.recording.recorder import Recorder
from unstall.recording.settings import Settings
from unstall.recording.torch_profiler import TorchProfiler


def choose(settings: Settings) -> tuple[Recorder, Recorder | None]:
    """The recorder, and what follows lines with it, for settings that `check_choices` takes.

    Raises UnstallError where what is asked for does not work here.
    """
    folder = Path(settings.folder)
    if settings.recorder == "torch" or (settings.recorder == "auto" and settings.shapes):
        return _torch(settings, folder, None)
    lines = _lines_with_cupti(settings, folder)  # first: a recorder that is made is the one client of CUPTI
    try:
        recorder = Cupti(folder)
    except UnstallError as error:
        if settings.recorder == "cupti" or settings.lines == "calls":
            raise
        return _torch(settings, folder, str(error))
    return recorder, lines


def _lines_with_cupti(settings: Settings, folder: Path) -> Recorder | None:
    """Stacks at calls, which cost next to nothing, else what clocks every line."""
    if settings.lines == "none":
        return None
    if settings.lines == "calls" or (settings.lines == "auto" and unavailable() is None):
        return CallStacks(folder)
    return _clock(settings, folder)


def _torch(settings: Settings, folder: Path, instead: str | None) -> tuple[Recorder, Recorder | None]:
    """Without sys.monitoring the profiler's own stacks cost less than sys.settrace does. But they would take the place
    of a profiler that the program runs, such as cProfile, as sys.settrace would that of its debugger."""
    auto = settings.lines == "auto" and available() == "settrace"
    stacks = auto and not _is_profiled()
    recorder = TorchProfiler(folder, shapes=settings.shapes, stacks=stacks, instead=instead)
    without = stacks or settings.lines == "none" or (auto and sys.gettrace() is not None)
    return recorder, None if without else _clock(settings, folder)


def _is_profiled() -> bool:
    """Whether Python calls a profiler of the program's own, on this thread or on those that it starts."""
    return sys.getprofile() is not None or threading.getprofile() is not None


def _clock(settings: Settings, folder: Path) -> LineClock:
    mode = settings.lines if settings.lines in ("monitoring", "settrace") else available()
    return LineClock(folder, mode, lambda file: not is_framework(file))
