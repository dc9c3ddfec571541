"""Chooses the recorder of a recording, and its line clock, which records which source lines run. If
the settings leave the choice open, takes the cheapest that works in this process.
"""

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
    """Returns `(recorder, line_clock)` for a recording. `line_clock` records which source lines
    run. It is None if no lines are wanted, or if the recorder itself finds them.

    The settings must be possible: `check_choices` checks this.

    Raises:
        UnstallError: The settings ask for a recorder or a line clock that does not work in this
            process.
    """
    folder = Path(settings.folder)
    if settings.by_torch:
        return _torch(settings, folder, None)
    lines = _lines_with_cupti(settings, folder)  # first, because a recorder is CUPTI's only client once made
    try:
        recorder = Cupti(folder)
    except UnstallError as error:
        if settings.recorder == "cupti" or settings.lines == "calls":
            raise
        return _torch(settings, folder, str(error))
    return recorder, lines


def _lines_with_cupti(settings: Settings, folder: Path) -> Recorder | None:
    """Returns the object that records source lines beside the recorder `cupti`. Returns None if no
    lines are wanted.

    Prefers `CallStacks` to a line clock, because `CallStacks` costs almost nothing.
    """
    if settings.lines == "none":
        return None
    if settings.lines == "calls" or (settings.lines == "auto" and unavailable() is None):
        return CallStacks(folder)
    return _clock(settings, folder)


def _torch(settings: Settings, folder: Path, instead: str | None) -> tuple[Recorder, Recorder | None]:
    """Returns the recorder `torch` and its line clock. `instead` says why it replaces the recorder
    `cupti`, or is None.

    Without sys.monitoring, stacks by torch.profiler cost less than sys.settrace. But stacks by
    torch.profiler would replace a profiler that the program runs, such as cProfile. And
    sys.settrace would replace a debugger.
    """
    auto = settings.lines == "auto" and available() == "settrace"
    stacks = auto and not _is_profiled()
    recorder = TorchProfiler(folder, shapes=settings.shapes, stacks=stacks, instead=instead)
    without = stacks or settings.lines == "none" or (auto and sys.gettrace() is not None)
    return recorder, None if without else _clock(settings, folder)


def _is_profiled() -> bool:
    """Returns whether the program runs a Python profiler, on the current thread or on threads that it starts."""
    return sys.getprofile() is not None or threading.getprofile() is not None


def _clock(settings: Settings, folder: Path) -> LineClock:
    mode = settings.lines if settings.lines in ("monitoring", "settrace") else available()
    return LineClock(folder, mode, lambda file: not is_framework(file))
