"""Finds the work of torch's GradScaler. It decides on the host whether the optimizer steps, so no CUDA graph has it."""

from __future__ import annotations

import re

import numpy as np

from unstall.locate.kinds import named
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import Bool, HostKind, Timeline
from unstall.timeline.remembered import remembered

_FILE = re.compile(r"(?:.*/)?torch/(?:cuda/)?amp/grad_scaler\.py")
_OPERATOR = r"aten::_amp_"


@remembered
def of_grad_scaler(timeline: Timeline) -> Bool:
    """Returns a mask of the host events in which a GradScaler scales, unscales, updates, or calls the optimizer.

    Its operators tell it in a run without stacks. The optimizer's work in `scaler.step()` is then unknown.
    """
    host, stacks = timeline.host, timeline.stacks
    found: Bool = nearest(host.parent, named(timeline, _OPERATOR, host.name, host.kind == HostKind.OP)) >= 0
    if len(stacks):
        below = nearest(stacks.parent, named(timeline, _FILE, timeline.lines.file)[stacks.line]) >= 0
        found |= np.append(below, False)[host.stack]
    return found
