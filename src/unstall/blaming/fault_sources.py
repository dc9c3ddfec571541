"""Sources of faults other than the CUDA driver. The virtual GPU is one: it has no driver that could
report a fault, so it reports faults itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from unstall.blaming.result import BlameResult

FaultsOf: TypeAlias = Callable[[], BlameResult]
"""A function that returns what is known of the first fault in a block of `unstall.blame()`. If
there was no fault, the field `error` of the result is "".
"""

_sources: list[Callable[[], FaultsOf]] = []


def add_source(begin: Callable[[], FaultsOf]) -> None:
    """Adds a source of faults. From now on, blocks of `unstall.blame()` ask this source instead of
    the CUDA driver.

    Args:
        begin: A function that is called when a block of `unstall.blame()` begins. It returns a
            second function. The second function is called when the block has ended with an error,
            and returns what is known of the fault.
    """
    _sources.append(begin)


def begin_block() -> FaultsOf | None:
    """Tells the source of faults that a block of `unstall.blame()` begins. The source is the one
    that was added last.

    Returns:
        The function to call when the block has ended with an error: it returns what is known of the
        fault. None if no source was added, so that only the CUDA driver knows of faults.
    """
    return _sources[-1]() if _sources else None
