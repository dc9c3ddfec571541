"""Checks that a file has something to explain: if most of it was lost, a report on the rest would mislead."""

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
    """Load a file as `load` does, but refuse it if there is nothing to explain.

    Raises TraceError also if the file has lost events and no device event is left, or if it has no events at all. A
    file of our own recorders may have no events: it is a whole run in which nothing happened.
    """
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
