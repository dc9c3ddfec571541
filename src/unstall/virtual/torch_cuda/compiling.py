"""torch.compile on a virtual GPU: what it is given runs as it is, and a warning says so once.

The kernels that it would make are machine code of a real GPU, so they can neither run here nor be timed. The values are
the same without them, and a program that compiles what it can still runs; its times are those of the operators one by
one. Refusing would stop programs for an optimisation that they do not depend on.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any

TEXT = (
    "torch.compile does not compile for the virtual GPU: what it is given runs operator by operator, and the predicted "
    "times are those of a run without torch.compile"
)


@dataclass(slots=True)
class _Asked:
    compile: bool = False


_asked = _Asked()


def notes() -> tuple[str, ...]:
    """What a report of this process's run is to say: `TEXT` once something was to be compiled."""
    return (TEXT,) if _asked.compile else ()


class NotCompiledWarning(UserWarning):
    """What torch.compile was given runs operator by operator."""


def run_uncompiled(torch: ModuleType) -> None:
    """Let `torch.compile` give back what it is given."""
    compile_ = torch.compile

    @functools.wraps(compile_)
    def compile(model: Any = None, **options: Any) -> Any:
        if options.get("disable"):
            return compile_(model, **options)
        if model is None:
            return functools.partial(compile, **options)
        _asked.compile = True
        warnings.warn(TEXT, NotCompiledWarning, stacklevel=2)
        return compile_(model, **{**options, "disable": True})

    torch.compile = compile  # type: ignore[attr-defined]
