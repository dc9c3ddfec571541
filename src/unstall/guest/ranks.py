"""Finds out whether this process is one of several ranks."""

from __future__ import annotations

import os
import sys


def is_one_of_several() -> bool:
    """Returns whether this process is one of several ranks of a distributed program.

    Ranks wait for each other in collectives, so all ranks must take the same number of steps. A decision that affects
    the number of steps may depend on counts, which are equal on all ranks. The decision must not depend on times,
    because the clocks of the ranks differ.
    """
    world_size = os.environ.get("WORLD_SIZE", "")
    if world_size.isdecimal() and int(world_size) > 1:
        return True
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return False
    return bool(distributed.is_initialized()) and int(distributed.get_world_size()) > 1
