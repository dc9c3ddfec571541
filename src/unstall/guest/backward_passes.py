"""Where Python begins a backward pass: a function of torch that two of its modules have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

ENGINE = "_engine_run_backward"
"""The name of the function. All callers in torch look it up in `torch.autograd`."""
ENGINE_MODULES = ("torch.autograd", "torch.autograd.graph")
"""The modules that have it. A wrapper must be in both: `torch.compiler` replaces both for a while, and afterwards sets
both to what `torch.autograd.graph` had before."""


def engine_modules() -> Iterator[ModuleType]:
    """Yields those of `ENGINE_MODULES` that are imported. Some versions of torch have `ENGINE` in one of them only."""
    for name in ENGINE_MODULES:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, ENGINE):
            yield module
