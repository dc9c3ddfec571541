"""Powers of two, by which kernels divide their work."""

from __future__ import annotations

import math


def power_within(count: int) -> int:
    """Returns the largest power of two that is at most a count, and at least 1."""
    return 1 << max(count, 1).bit_length() - 1


def below_power(count: int) -> float:
    """Returns how many doublings a count is below the next power of two."""
    return (count - 1).bit_length() - math.log2(count)


def halvings(count: int, most: int) -> int:
    """Returns how often a count can be divided by two, up to `most` times."""
    return min((count & -count).bit_length() - 1, most)
