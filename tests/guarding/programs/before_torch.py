"""A guard that is entered before torch is imported."""

import sys

from telling import show

import unstall

with unstall.no_sync("count") as guard:
    was_there = "torch" in sys.modules
    import torch

    torch.ones(3, device="cuda").sum().item()
show(was_there=was_there, kinds=sorted({wait.kind for wait in guard.waits}))
