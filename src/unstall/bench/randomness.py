"""Random numbers that are the same for each call, and go on for the program as if there had been none."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np


@contextmanager
def same_randomness() -> Iterator[None]:
    """Give the default generators of Python, NumPy and torch their states back at the end."""
    with ExitStack() as undo:
        undo.callback(random.setstate, random.getstate())
        undo.callback(np.random.set_state, np.random.get_state())
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "get_rng_state"):
            undo.callback(torch.set_rng_state, torch.get_rng_state())
            if torch.cuda.is_initialized():
                undo.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        yield
