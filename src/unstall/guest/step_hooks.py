"""Installs and removes hooks on torch's optimizers, DataLoaders and modules. The hooks detect the step boundaries of a
program: the moments at which one step ends and the next begins.

The functions of `unstall.fix` set step boundaries themselves in two cases: when they pass an item to the program, and
when they replace a call by the replay of a CUDA graph.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Protocol

from unstall.guest import steps
from unstall.guest.captured_steps import CapturedSteps, OnBoundary
from unstall.guest.patching import wrap_after
from unstall.guest.step_source import FORWARD, LOADER, OPTIMIZER, StepSource


class StepHooks(Protocol):
    """The hooks in torch that detect step boundaries, as `install` returns them."""

    def follow(self, source: StepSource | None) -> None:
        """Limits the hooks to the step boundaries of one optimizer, DataLoader or module: `source`. This costs less
        than watching all of them. If `source` is None, watches the step boundaries of all of them."""

    def remove(self) -> None:
        """Removes the hooks from torch."""


def install(on_boundary: OnBoundary, on_loop_end: OnBoundary = lambda kind, who: None) -> StepHooks:
    """Installs hooks in torch that call `on_boundary` at every step boundary: when an optimizer has stepped, when a
    DataLoader has returned a batch, and (from Python 3.12 on) when a model is called. A step that the program captures
    into a CUDA graph counts at each replay. torch must be imported.

    `on_loop_end` is called when a DataLoader has no more batches, with the arguments of the boundaries that its batches
    set. If the DataLoader raises an exception, this ends its loop as well.

    Returns an object whose `remove` removes the hooks.
    """

    captured = CapturedSteps(on_boundary)

    def pass_on(kind: str, who: int) -> None:
        if not steps.steps_are_ignored() and not captured.note(kind, who):
            on_boundary(kind, who)

    if sys.version_info >= (3, 12):
        from unstall.guest.model_calls import ModelCallHooks

        return _Installed(pass_on, on_loop_end, lambda: ModelCallHooks(pass_on), captured.remove)
    return _Installed(pass_on, on_loop_end, lambda: None, captured.remove)


class _Installed:
    def __init__(
        self,
        on_boundary: OnBoundary,
        on_loop_end: OnBoundary,
        watch_modules: Callable[[], StepHooks | None],
        *removals: Callable[[], None],
    ) -> None:
        self._watch_modules = watch_modules
        self._modules = watch_modules()
        with ExitStack() as undo:
            for each in removals:
                undo.callback(each)
            undo.callback(self._leave_modules)
            undo.callback(_watch_optimizers(on_boundary))
            undo.callback(_watch_loaders(on_boundary, on_loop_end))
            self._undo = undo.pop_all()

    def follow(self, source: StepSource | None) -> None:
        if source is not None and source.kind != FORWARD:
            self._leave_modules()
        elif self._modules is not None:
            self._modules.follow(source)
        else:
            self._modules = self._watch_modules()

    def remove(self) -> None:
        self._undo.close()

    def _leave_modules(self) -> None:
        if self._modules is not None:
            self._modules.remove()
            self._modules = None


def _watch_optimizers(on_boundary: OnBoundary) -> Callable[[], None]:
    compiler, optimizers = import_module("torch.compiler"), import_module("torch.optim.optimizer")

    def stepped(optimizer: Any, args: object, kwargs: object) -> None:
        # A step that torch.compile traces does not run yet, and the hook must not break its graph. A step within
        # another optimizer's step, or within the same one by super().step(), is part of the outer one.
        if not compiler.is_compiling() and steps.is_outermost(sys._getframe(1)):
            on_boundary(OPTIMIZER, id(optimizer))

    remove: Callable[[], None] = optimizers.register_optimizer_step_post_hook(stepped).remove
    return remove


def _watch_loaders(on_boundary: OnBoundary, on_loop_end: OnBoundary) -> Callable[[], None]:
    iterators, this_call = import_module("torch.utils.data.dataloader")._BaseDataLoaderIter, threading.local()

    def batched(iterator: Any) -> None:
        this_call.has_batch = True
        if not steps.is_fetching():
            # An iterator lasts one epoch; its data set stays.
            on_boundary(LOADER, id(getattr(iterator, "_dataset", None)))

    def over(iterator: Any) -> None:
        has_batch, this_call.has_batch = getattr(this_call, "has_batch", False), False
        if not (has_batch or steps.is_fetching() or steps.steps_are_ignored()):
            on_loop_end(LOADER, id(getattr(iterator, "_dataset", None)))

    with ExitStack() as undo:
        undo.callback(wrap_after(iterators, "__next__", batched))
        undo.callback(wrap_after(iterators, "__next__", over, always=True))
        return undo.pop_all().close
