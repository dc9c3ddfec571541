"""Which of the host's global random generators were drawn from between two looks."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


def random_states() -> dict[str, Any]:
    """By the generator's name what changes when it is drawn from. About 30 µs."""
    states: dict[str, Any] = {"torch": torch.get_rng_state().numpy().tobytes(), "random": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy.random"] = (name, keys.tobytes(), *rest)
    return states


def drawn_from(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Names of those that were drawn from, or seeded."""
    return {name for name, state in after.items() if before.get(name, state) != state}
