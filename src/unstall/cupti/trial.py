"""Tests libcupti in a separate process, because a libcupti that does not fit the driver may crash at the first call.

For example, nvidia-cuda-cupti 13.2.86 without a driver calls itself in `cuptiGetVersion` until the stack ends.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

FIRST_STEPS, BEFORE_STEPS = "first", "before"
"""The names of two folders within a recording's folder. FIRST_STEPS has a recording of the program's first steps.
BEFORE_STEPS has a recording of the time before the first step, if the recorder `torch` has to wait for a step."""

_TRIED = "cupti_tried.json"
_LONGEST_S = 60.0  # subscribing initialises the driver, which takes seconds on a machine with many GPUs
_TRIES = """\
import importlib.util, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
spec = importlib.util.spec_from_file_location("_cupti", sys.argv[1])
cupti = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cupti)
try:
    cupti.load(sys.argv[2])
    cupti.subscribe()
    cupti.unsubscribe()
except (OSError, RuntimeError):
    pass  # an error is no crash: whoever loads the library next gets it too
"""
_results: dict[str, str | None] = {}


def why_not(extension: str, library: Path, folder: Path) -> str | None:
    """Returns the reason why this process must not load a certain libcupti; None if the process may
    load it.

    Tests the library in a separate process, at most once. If `try_ahead` has written a result to
    `folder`, uses this result. If `folder` is a folder within that of a recording (it is called
    FIRST_STEPS or BEFORE_STEPS), the result may also be in its parent folder.

    Args:
        extension: The file of the C extension that loads the library.
        library: The file of libcupti.
        folder: The folder to which records are written.
    """
    name = str(library)
    # These two folders lie in the recording's own. Around any other, strangers may write.
    for each in (folder, folder.parent) if folder.name in (FIRST_STEPS, BEFORE_STEPS) else (folder,):
        if name not in _results:
            with suppress(OSError, ValueError, TypeError):
                _results.update(json.loads((each / _TRIED).read_text()))
    if name not in _results:
        _results[name] = _try(extension, name)
    return _results[name]


def try_ahead(extension: str, library: Path, folder: Path) -> None:
    """Tests whether a libcupti crashes, in a separate process, and writes the result to `folder`. A
    program that later records into `folder` uses this result instead of testing again.

    Args:
        extension: The file of the C extension that loads the library.
        library: The file of libcupti.
        folder: The folder of the recording.
    """
    (folder / _TRIED).write_text(json.dumps({str(library): why_not(extension, library, folder)}))


def _try(extension: str, library: str) -> str | None:
    if not sys.executable:
        return f"{library} cannot be tried in a process of its own first: this Python has no executable"
    command = [sys.executable, "-I", "-S", "-c", _TRIES, extension, library]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired:
        return f"{library} does not answer: it took more than {_LONGEST_S:g} s to load in a process of its own"
    except OSError as error:
        return f"{library} cannot be tried in a process of its own first: {error.strerror or error}"
    if done.returncode < 0:
        return (
            f"{library} crashes as it is loaded ({_signal_name(-done.returncode)}, in a process of its own): "
            "install the nvidia-cuda-cupti that this torch asks for, or a driver that is as new"
        )
    return None


def _signal_name(number: int) -> str:
    """Returns what `figures.signal_name` returns. This runs in the recorded program, where few modules are imported."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
