"""`no_sync` and `allow_sync`: context managers and decorators."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from unstall.errors import UsageError
from unstall.guarding import backward, driver, regions
from unstall.guarding.decorated import decorated
from unstall.guarding.guard import Guard, Mode
from unstall.guest.imports import when_imported

Function = TypeVar("Function", bound=Callable[..., Any])


def _never() -> bool:
    return False


is_compiling: Callable[[], bool] = _never
"""A function that returns whether torch.compile is compiling the code that calls it. After torch has been imported, it
is `torch.compiler.is_compiling`. torch.compile treats its result as a constant. So torch.compile does not trace code
that runs only outside of compilation."""


def _torch_is_imported() -> None:
    global is_compiling
    torch = sys.modules["torch"]
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", _never)
    backward.carry(torch)
    driver.connect(torch)


when_imported("torch", _torch_is_imported)


class _Block:
    """A context manager that registers when its `with` block is entered and left. The same object can be entered
    several times before it is left."""

    def __init__(self) -> None:
        self._entered: list[regions.Region] = []

    def __enter__(self) -> Self:
        if not is_compiling():
            self._entered.append(regions.enter(self if isinstance(self, Guard) else None))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not is_compiling():
            regions.leave_one_of(self._entered)


class no_sync(_Block, Guard):  # noqa: N801 - used like a function
    """Guard a block or a function against waits of the CPU for the GPU.

        with unstall.no_sync():
            step(batch)  # raises SyncError at the first line that waits

        @unstall.no_sync("warn")
        def step(batch): ...

        with unstall.no_sync("count") as guard:
            step(batch)
        print(guard.count, guard.waits)

    Until its block is left, a guard is active in its thread, in the asyncio tasks that are created in the block, and in
    the backward passes that are called in the block. Guards can be nested; only the innermost guard acts on a wait.
    `unstall.allow_sync` suspends all guards. A call that waits for the GPU is reported even if the GPU happens to have
    finished its work, because whether the GPU has finished depends on timing.

    In code that torch.compile compiles, a guard does nothing. Put the guard around the call of the compiled function.

    As a decorator, `no_sync` guards each call of the function. A decorated async function is an async function, and a
    decorated generator function is a generator function. A decorated generator is guarded only while it runs, not while
    it is suspended at a `yield`. If a `with` block in a generator contains a `yield`, it also guards the code that uses
    the yielded values.

    Several threads may use guards at the same time. Each thread needs a guard of its own.

    Args:
        mode: "error" raises SyncError before the wait. "warn" issues a SyncWarning at the line that waits. The warning
            says how long the wait took. "count" only collects waits.

    Attributes:
        waits: The waits so far, in order. Only the first 10,000 are kept.
        count: The number of all waits.

    Raises:
        UsageError: `mode` is not one of the three modes. Entering the block raises UsageError if waits cannot be
            observed on this machine.
    """

    def __init__(self, mode: Mode = "error") -> None:
        Guard.__init__(self, mode)
        _Block.__init__(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        refused, self.refused = self.refused, None
        super().__exit__(kind, error, trace)
        if refused is not None and driver.is_refusal(error):
            raise refused.with_traceback(trace) from None
        if refused is not None and (error is None or isinstance(error, RuntimeError)):
            raise refused from error

    def __call__(self, function: Function) -> Function:
        return decorated(function, partial(no_sync, self.mode))


class allow_sync(_Block):  # noqa: N801 - used like a function
    """Allow waits in a block or a function that is under `unstall.no_sync`.

        with unstall.allow_sync("the loss is logged every 100 steps"):
            log(loss.item())

    Like `no_sync`, `allow_sync` is a context manager and a decorator. A `no_sync` block inside an `allow_sync` block
    guards again.

    Several threads may use `allow_sync` at the same time. Until a block is left, it allows waits in the thread that
    entered it, in the asyncio tasks that are created in the block, and in the backward passes that are called in the
    block.

    Args:
        reason: Why the wait is acceptable. The reason is for readers of the code; it has no effect.

    Raises:
        UsageError: `reason` is missing or empty.
    """

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str) or not reason.strip():
            raise UsageError('allow_sync() needs a reason: unstall.allow_sync("the loss is logged every 100 steps")')
        super().__init__()
        self.reason = reason

    def __call__(self, function: Function) -> Function:
        return decorated(function, partial(allow_sync, self.reason))
