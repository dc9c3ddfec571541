"""`DispatchMode`: the base class of unstall's dispatch modes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A `TorchDispatchMode` that does not import `torch._dynamo`.

    torch keeps `torch.compile` from compiling the code of a mode. To do so, it imports `torch._dynamo` at the mode's
    first operator, even if the program compiles nothing. That takes 1.6 s, or 7 s if the files are not in memory yet.
    This class does the same as torch, but only from the first operator on at which the program has imported
    `torch._dynamo`. The mode may have been entered before.
    """

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]
        own = vars(cls).get("__torch_dispatch__")
        if own is not None:
            cls.__torch_dispatch__ = _not_compiled(own)  # type: ignore[method-assign]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # `_not_compiled` does it


def _not_compiled(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `dispatch` as a function that `torch.compile` does not compile, nor what it calls."""
    disabled: Callable[..., Any] | None = None

    @wraps(dispatch)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        nonlocal disabled
        if disabled is None:
            # An import of `torch._dynamo` that has not come to `disable` yet has not compiled anything.
            disable = getattr(sys.modules.get("torch._dynamo"), "disable", None)
            if disable is None:
                return dispatch(*args, **kwargs)
            disabled = disable(dispatch)
        return disabled(*args, **kwargs)

    _skip(chosen)
    return chosen


def _skip(function: Any) -> None:
    """Keeps `torch.compile` from compiling `function` itself. It still compiles what the function calls.

    `torch._dynamo` has a function for this, but must not be imported here. If a version of torch has neither of the
    names below, `function` is compiled, too.
    """
    eval_frame: Any = torch._C._dynamo.eval_frame
    if hasattr(eval_frame, "skip_code"):  # of older versions
        eval_frame.skip_code(function.__code__)
    elif hasattr(eval_frame, "set_code_exec_strategy"):
        skip, default = eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
        eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, default))
