"""Refuses files that have nothing to explain, such as a damaged file without device events. A
report on what is left of such a file would mislead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from unstall.errors import TraceError
from unstall.read import load
from unstall.timeline.columns import Timeline

# Notes that read/kineto.py makes.
_ENDS_EARLY = re.compile(r".* at byte [\d,]+ of the text, after [\d,]+ events?")
_LOST = re.compile(r"dropped [\d,]+ events? that ")


def load_usable(path: str | Path, progress: Callable[[int, int], None] | None = None) -> Timeline:
    """Reads a file as `unstall.load` does, and refuses a file that has nothing to explain.

    A file that one of unstall's own recorders wrote may be empty, because the program may have done
    nothing.

    Args:
        path: The file.
        progress: A function that is called with (bytes read, total bytes) while the file is read.

    Raises:
        TraceError: The file cannot be read, has lost all of its device events, or has no events at
            all.
    """
    timeline = load(path, progress=progress)
    meta = timeline.meta
    if len(timeline.device):
        return timeline
    for pattern, what in ((_ENDS_EARLY, "it ends before its device events"), (_LOST, "it has no device events left")):
        if why := next((note for note in meta.notes if pattern.match(note)), None):
            raise TraceError(f"{meta.path}: {what}: {why}; give the whole file, or record the run again")
    if not len(timeline.host) and meta.recorder is None:
        raise TraceError(
            f"{meta.path}: there are no events in it to explain: no operators, calls of CUDA or work of a device, as "
            "torch.profiler records them; a trace of another tool cannot be read"
        )
    return timeline
