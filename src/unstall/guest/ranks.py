"""Finds whether the program is one of several ranks."""

from __future__ import annotations

import os
import sys


def is_one_of_several() -> bool:
    """Returns whether this process is a rank of a distributed program.

    Ranks wait for each other in collectives, so all ranks must take the same number of steps. Decisions that affect
    this number may depend on counts, but not on times, because each rank has a clock of its own.
    """
    world_size = os.environ.get("WORLD_SIZE", "")
    if world_size.isdecimal() and int(world_size) > 1:
        return True
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return False
    return bool(distributed.is_initialized()) and int(distributed.get_world_size()) > 1
