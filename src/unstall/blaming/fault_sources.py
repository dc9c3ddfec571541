"""Sources of faults other than CUDA's driver. The virtual GPU is one: no driver fails there, so it tells its faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from unstall.blaming.result import BlameResult

FaultsOf: TypeAlias = Callable[[], BlameResult]
"""Returns what is known of the first fault in a block. If there was no fault, `error` of the result is ""."""

_sources: list[Callable[[], FaultsOf]] = []


def add_source(begin: Callable[[], FaultsOf]) -> None:
    """Adds a source of faults. It is asked instead of the driver.

    Args:
        begin: A function that is called when a block of `unstall.blame()` begins. The result is called when the block
            has ended with an error.
    """
    _sources.append(begin)


def begin_block() -> FaultsOf | None:
    """Returns the source's function for a block that begins. Returns None if only the driver knows of faults."""
    return _sources[-1]() if _sources else None
