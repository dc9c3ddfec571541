"""Writes the trace file of a recorded program. If the main recording has no device work, the file
gets the recording of the program's first steps instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cupti.trial import BEFORE_STEPS
from unstall.errors import TraceError
from unstall.recording.first_steps import recorded_beginnings

if TYPE_CHECKING:
    from unstall.recording.trace.recorded import Recorded

_NOTHING = "nothing was recorded: "
_NO_WORK = "nothing ran on the device later, during the recording"


def write_trace(folder: Path, path: Path, *, missing: str | None = None, of: str = "program") -> str | None:
    """Writes the recording in `folder` as a trace file, even if the recording was cut short.

    If the recording has no device work, writes the recording of the program's first steps instead.

    Args:
        folder: The recording's folder.
        path: The trace file. Its name ends in `.json` or `.json.gz`.
        missing: Why the recording never began; None if it began. The program's first steps may
            still have been recorded.
        of: A word for what was recorded, such as "program".

    Returns:
        None if the trace file has the recording. If it has the program's first steps instead, a
        clause that says why.

    Raises:
        TraceError: Nothing was recorded.
        UsageError: `path` cannot be written.
    """
    beginnings = recorded_beginnings(folder)
    if missing is not None and not beginnings:
        raise TraceError(f"{_NOTHING}{missing}")
    from unstall.recording.trace.recorded import read_recorded  # here, since it imports numpy

    why = missing
    found: tuple[Recorded, str | None] | None = None
    for each in beginnings if missing is not None else [folder, *beginnings]:
        try:
            recorded = read_recorded(each, session=folder)
        except TraceError as error:
            why = why or str(error).removeprefix(_NOTHING)
            continue
        if found is None or recorded.device_ops:
            found = recorded, None if each == folder else _shortfall(recorded, each, of, why)
        if recorded.device_ops:
            break
        why = why or (f"the recording failed: {recorded.failed}" if recorded.failed else _NO_WORK)
    if found is None:
        raise TraceError(f"{_NOTHING}{why}")
    recorded, shortfall = found
    recorded.write(path, shortfall)
    return shortfall


def _shortfall(recorded: Recorded, folder: Path, of: str, why: str | None) -> str:
    by = f", recorded with {recorded.recorder}" if folder.name == BEFORE_STEPS else ""
    return f"this is how the {of} began{by}, since {why}"
