"""Says in which types a GPU's tensor cores multiply, by the GPU's name."""

from __future__ import annotations

import re

from unstall.timeline.columns import Timeline

# Compute capability 7.0 and 7.5: their tensor cores multiply in float16, but neither in bfloat16 nor in TF32.
_BEFORE_AMPERE = re.compile(r"\b(?:T4|T4G|V100|TITAN V|TITAN RTX|RTX 20\d\d|Quadro RTX|T1000|T2000)\b")


def only_float16(timeline: Timeline) -> bool:
    """Returns whether a GPU of the run has tensor cores that multiply neither in bfloat16 nor in TF32."""
    return any(map(_BEFORE_AMPERE.search, timeline.meta.devices))
