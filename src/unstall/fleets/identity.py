"""Finds out which rank of a job a trace belongs to, and on which machine that rank ran."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from unstall.timeline.columns import Timeline

_ENDINGS = r"(?i)(?:\.(?:json|gz|zst|zip|pt|trace|timeline|unstall))+$"
_RANK = r"(?i)(?:^|[^a-z])(?:rank|worker|node_?rank|gpu|r)[-_ ]?\[?(\d{1,6})"
_NUMBER = r"(?:^|[-_.])(\d{1,6})$"
# As torch.profiler.tensorboard_trace_handler names files: HOST_PID.TIME.pt.trace.json
_BY_HANDLER = r"^(?P<host>[\w.-]+?)_(?P<pid>\d+)\.\d{9,}\.pt\.trace\.json(?:\.gz)?$"


class Identity(NamedTuple):
    """Which rank a trace belongs to, and where the rank ran.

    Attributes:
        rank: The global number of the rank. -1 if it is unknown.
        by: Where the number comes from: "distributedInfo" (in the trace), "file name" (of the trace or of its folder),
            or "nothing".
        machine: The name of the machine. None if it is unknown.
    """

    rank: int
    by: str
    machine: str | None


def identify(timeline: Timeline, path: Path) -> Identity:
    """Returns which rank a trace belongs to. The number of the rank is taken from the trace itself. If the trace does
    not have it, the number is taken from the name of the file, or else from the name of the file's folder.

    Args:
        timeline: The trace that was read.
        path: The path of the trace.
    """
    named = told_by_name(path)
    if timeline.meta.rank is not None and timeline.meta.rank >= 0:
        return Identity(timeline.meta.rank, "distributedInfo", named.machine)
    return named


def told_by_name(path: Path) -> Identity:
    """Returns what the name of a trace's file and that of its folder tell about the rank."""
    handler = re.match(_BY_HANDLER, path.name)
    machine = handler["host"] if handler and not re.search(_RANK, handler["host"]) else None
    stem = re.sub(_ENDINGS, "", path.name)
    for text in (stem, path.parent.name):
        if found := re.search(_RANK, text):
            return Identity(int(found[1]), "file name", machine)
    if not handler and (found := re.search(_NUMBER, stem)):
        return Identity(int(found[1]), "file name", machine)
    return Identity(-1, "nothing", machine)
