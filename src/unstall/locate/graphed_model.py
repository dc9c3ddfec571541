"""Finds out whether the model that a framework calls already runs as a CUDA graph of `unstall.graphed`."""

from __future__ import annotations

import re

from unstall.locate.engine import models
from unstall.locate.kinds import named
from unstall.locate.places import Places
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I64, HostKind

_FILES = re.compile(r"(.*/)?unstall/fix/graphs/")
_SOME = 0.1  # of the launches: as much of another model is worth a graph of its own


def is_around_a_graphed_model(places: Places, rows: I64) -> bool:
    """Returns whether `unstall.graphed` already runs the model as a CUDA graph, and the events in
    `rows` are outside the model. This is so if `unstall.graphed` launched a CUDA graph in the run,
    and if at most a tenth of the events are inside models that run without `unstall.graphed`.

    Args:
        places: The place in the source of each host event.
        rows: The events in question, as rows of `timeline.host`.
    """
    timeline = places.timeline
    host, stacks = timeline.host, timeline.stacks
    if not len(stacks) or not len(rows):
        return False
    files = named(timeline, _FILES, timeline.lines.file)
    below = nearest(stacks.parent, files[stacks.line]) >= 0
    graphs = host.stack[(host.kind == HostKind.GRAPH_LAUNCH) & (host.stack >= 0)]
    if not below[graphs].any():
        return False
    stack = host.stack[rows]
    other = (models(places) >= 0) & ~below
    return float((other[stack] & (stack >= 0)).mean()) <= _SOME
