"""Reads the profile of a running program's `torch.profiler` into a `Timeline`. Does not import
torch: the protocol `Profile` stands for torch's profiler class.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from unstall.errors import UsageError
from unstall.read import load
from unstall.timeline.columns import Timeline

_NAME = "torch.profiler.profile"


@runtime_checkable
class Profile(Protocol):
    """Stands for `torch.profiler.profile`, and has the only method of it that unstall calls."""

    def export_chrome_trace(self, path: str) -> object: ...


_read: WeakKeyDictionary[object, Timeline] = WeakKeyDictionary()  # torch exports a profile only once


def read_profile(profile: Profile) -> Timeline:
    """Returns the timeline of a profile that was stopped. Exports the profile to a temporary file
    for this.

    torch exports a profile only once. So the timeline is kept, and later calls with the same
    profile return it.

    Raises:
        UsageError: `profile` is not a profile, is still running, or was already exported by other
            code.
    """
    if not isinstance(profile, Profile):
        raise UsageError(
            f"cannot explain what is of type {type(profile).__name__}: give a trace file, a Timeline or a {_NAME}"
        )
    # A profile with a schedule makes a new inner profiler for each cycle.
    recording = getattr(profile, "profiler", None) or profile
    if recording not in _read:
        _read[recording] = _export(profile)
    return _read[recording]


def _export(profile: Profile) -> Timeline:
    with tempfile.TemporaryDirectory(prefix="unstall-") as folder:
        path = Path(folder) / "trace.json"
        packed = path.with_name("trace.json.gz")  # torch's second profiler appends that to any name
        try:
            profile.export_chrome_trace(str(path))
        except (AssertionError, AttributeError, RuntimeError) as error:
            raise UsageError(
                f"torch cannot export this profile ({str(error).strip()}): explain it after its `with` block; "
                "if it was exported before, explain that file"
            ) from error
        if not path.exists() and not packed.exists():
            raise UsageError(
                "torch exported no file for this profile: its profiler for CUDA was not available, or exports later "
                "(cuspy_async_export); wait for the export, and explain that file"
            )
        timeline = load(path if path.exists() else packed)
        return timeline.with_meta(path=_NAME)
