"""Random numbers that are the same for each call, and go on for the program as if there had been none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from unstall.guest.rng import RandomStates, devices_in_use


@contextmanager
def same_randomness() -> Iterator[None]:
    """Give the default generators of Python, NumPy and torch their states back at the end."""
    states = RandomStates(devices=devices_in_use())
    try:
        yield
    finally:
        states.put_back()
