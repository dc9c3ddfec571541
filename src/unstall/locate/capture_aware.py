"""Finds code that does other work while it is captured in a CUDA graph: it leaves out its waits for the device."""

from __future__ import annotations

import re

import numpy as np

from unstall.locate.functions import named_functions
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import Bool, Timeline
from unstall.timeline.remembered import remembered

# Each asks torch.cuda.is_current_stream_capturing().
_ASKS = re.compile(r"(?:^|/)transformers/masking_utils\.py: |(?:^|/)torch/nn/modules/_functions\.py: .*\bforward$")


@remembered
def leaves_waits_out(timeline: Timeline) -> Bool:
    """Returns a mask of the host events in code that asks whether a capture is running, and then does not wait for the
    device: transformers' tests of attention masks, and torch's SyncBatchNorm.
    """
    stacks = timeline.stacks
    within = nearest(stacks.parent, named_functions(timeline, _ASKS)[stacks.line]) >= 0
    found: Bool = np.append(within, False)[timeline.host.stack]
    return found
