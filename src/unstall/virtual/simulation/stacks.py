"""Which frames of the Python stacks in the shim's log are shown, and which cost time."""

from __future__ import annotations

from unstall.frameworks import OURS, is_left_out_of_stacks
from unstall.virtual.log import Stack

_OF_ANNOTATIONS = ("torch/autograd/profiler.py", "torch/cuda/nvtx.py")


def shown(stack: Stack) -> Stack:
    """Returns the frames of `stack` that people are shown: those of unstall are left out."""
    return [(code, offset) for code, offset in stack if not is_left_out_of_stacks(code.co_filename)]


def costed(stack: Stack) -> Stack:
    """Returns the frames of `stack` whose Python code costs time.

    Left out are the frames of unstall, and those that torch's Python code for annotations called:
    the cost of an annotation was measured with that code.
    """
    kept = [(code, offset) for code, offset in stack if not code.co_filename.startswith(OURS)]
    within = [at for at, (code, _) in enumerate(kept) if code.co_filename.endswith(_OF_ANNOTATIONS)]
    return kept[within[-1] + 1 :] if within else kept
