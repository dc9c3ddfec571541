"""Finds out whether this process is one of several ranks, and which."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


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


def rank_of(environ: Mapping[str, str]) -> int | None:
    """Returns the rank that torchrun or a similar launcher gave to this process; None if the run
    has only one process.

    `environ` has the environment variables of this process.
    """
    text = environ.get("RANK", environ.get("LOCAL_RANK", ""))
    return int(text) if text.isdecimal() and environ.get("WORLD_SIZE") != "1" else None


def speaker(environ: Mapping[str, str]) -> str:
    """Returns the beginning of a line on stderr: "unstall: ", or "unstall: rank 3: " if the run has several ranks.
    `environ` has the environment variables of this process.
    """
    rank = rank_of(environ)
    return "unstall: " if rank is None else f"unstall: rank {rank}: "
