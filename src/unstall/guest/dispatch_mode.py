"""`DispatchMode`: the base class of unstall's dispatch modes."""

from __future__ import annotations

import sys
from typing import Self

from torch._compile import _disable_dynamo
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A `TorchDispatchMode` that does not import `torch._dynamo`.

    torch keeps `torch.compile` from compiling the code of a mode. To do so, it imports `torch._dynamo` at the mode's
    first operator, even if the program compiles nothing. That takes 1.6 s, or 7 s if the files are not in memory yet.
    This class does the same as torch, but only if the program has imported `torch._dynamo`.
    """

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # `__enter__` does it

    def __enter__(self) -> Self:
        if "torch._dynamo" in sys.modules:
            _do_not_compile(type(self))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self


def _do_not_compile(mode: type[DispatchMode]) -> None:
    """Keeps `torch.compile` from compiling the functions that a mode calls for operators."""
    for each in mode.__mro__[: mode.__mro__.index(DispatchMode)]:
        own = vars(each).get("__torch_dispatch__")
        if own is not None and not hasattr(own, "__wrapped__"):
            type.__setattr__(each, "__torch_dispatch__", _disable_dynamo(own))
