"""Whether there is anything in a file to explain: a report of what was lost with the rest of it would mislead."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from unstall.errors import TraceError
from unstall.read import load
from unstall.timeline.columns import Timeline

# Notes of read/kineto.py.
_ENDS_EARLY = re.compile(r".* at byte [\d,]+ of the text, after [\d,]+ events?")
_LOST = re.compile(r"dropped [\d,]+ events? that ")


def load_usable(path: str | Path, progress: Callable[[int, int], None] | None = None) -> Timeline:
    """As `load`. Raises TraceError too for a file that has lost events, with no device event in what is left of it, and
    for one with no events at all; of our own recorders that is a whole run, in which nothing happened."""
    timeline = load(path, progress=progress)
    meta = timeline.meta
    if len(timeline.device):
        return timeline
    for pattern, what in ((_ENDS_EARLY, "it ends before its device events"), (_LOST, "it has no device events left")):
        if why := next((note for note in meta.notes if pattern.match(note)), None):
            raise TraceError(f"{meta.path}: {what}: {why}; give the whole file, or record the run again")
    if not len(timeline.host) and meta.recorder is None:
        raise TraceError(f"{meta.path}: there are no events in it to explain; record the run again")
    return timeline
