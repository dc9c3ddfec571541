"""Finds the steps of an inference program: a step is one call of a model by a framework's loop. For
example, `generate` of transformers calls the model once for each token.
"""

from __future__ import annotations

import re

import numpy as np

from unstall.frameworks import MODULE_CALL
from unstall.locate.frameworks import FRAMEWORKS
from unstall.timeline.ancestry import outermost
from unstall.timeline.columns import I64, HostKind, Timeline


def calls_from_loops(timeline: Timeline) -> I64:
    """Returns the times in ns, ascending, at which the loop of a framework (such as `generate` of
    transformers) called a model.

    If the loop calls several models, only the model that is called most often counts. Call stacks
    do not distinguish two calls in the same line. So two calls count as one if no event outside of
    the calls is between them. In practice the loop does other work between two calls: it chooses a
    token, or calls the `step` of a scheduler.
    """
    host, stacks, lines = timeline.host, timeline.stacks, timeline.lines
    none = np.zeros(0, np.int64)
    if not len(stacks):
        return none
    functions = [
        f"{timeline.text(file)}: {timeline.text(function)}"
        for file, function in zip(lines.file.tolist(), lines.function.tolist(), strict=True)
    ]
    loops = [re.compile(each.loop) for each in FRAMEWORKS if each.loop is not None]
    is_loop = np.array([any(loop.search(name) for loop in loops) for name in functions], np.bool_)[stacks.line]
    is_call = np.array([MODULE_CALL.search(name) is not None for name in functions], np.bool_)[stacks.line]
    calls = is_call & (stacks.parent >= 0) & is_loop[np.maximum(stacks.parent, 0)]
    rows = np.flatnonzero((host.stack >= 0) & (host.kind != HostKind.ANNOTATION))
    if not calls.any() or not len(rows):
        return none
    rows = rows[host.thread[rows] == np.bincount(host.thread[rows]).argmax()]
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    call = outermost(stacks.parent, calls, np.zeros(len(stacks), np.bool_))[host.stack[rows]]
    begins = (call >= 0) & (call != np.append(-1, call[:-1]))
    if not begins.any():
        return none
    times: I64 = host.start[rows[begins & (call == np.bincount(call[begins]).argmax())]]
    return times
