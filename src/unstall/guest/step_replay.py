"""Repeats the step boundaries of a function that `unstall.graphed` replaced by the replay of a CUDA graph. The replay
does not run the Python code that sets the boundaries, such as the optimizer's `step`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch

from unstall.guest import active, step_hooks, steps
from unstall.guest.step_source import FORWARD


class Boundary(NamedTuple):
    """One step boundary.

    Attributes:
        kind: The kind of the source that set the boundary. The kind is in `step_source.KINDS`, for example "optimizer".
        who: The `id` of the optimizer, data set or module that set the boundary. 0 for `unstall.step()`.
        grad_was_enabled: Whether autograd was enabled at the boundary. If True, a call of a model may be part of a
            training step.
    """

    kind: str
    who: int
    grad_was_enabled: bool


@contextmanager
def observed_boundaries() -> Iterator[list[Boundary]]:
    """Yields a list. During the block, each step boundary of the current thread is appended to the list. This works
    whether or not the program is being recorded."""
    found: list[Boundary] = []
    thread = threading.get_ident()

    def note(kind: str, who: int) -> None:
        if threading.get_ident() == thread:
            found.append(Boundary(kind, who, torch.is_grad_enabled()))

    with ExitStack() as undo:
        undo.callback(step_hooks.install(note).remove)
        undo.enter_context(steps.observing_steps(note))
        if sys.version_info < (3, 12):  # recordings then see no model calls, except those that graphs serve
            undo.callback(_watch_models(note))
        yield found


def repeat_boundaries(steps: Sequence[Boundary]) -> None:
    """Passes step boundaries to the active recording. Does nothing if there is no recording. `steps` are the step
    boundaries of a function call that was replaced by the replay of a CUDA graph. The replay does not run the code that
    sets them."""
    recording = active.current()
    if recording is not None:
        for kind, who, grad_was_enabled in steps:
            with torch.set_grad_enabled(grad_was_enabled):
                recording.step_boundary(kind, who)


def _watch_models(note: Callable[[str, int], None]) -> Callable[[], None]:
    def called(module: torch.nn.Module, _: object) -> None:
        if steps.is_outermost(sys._getframe(1)):
            note(FORWARD, id(module))

    remove: Callable[[], None] = torch.nn.modules.module.register_module_forward_pre_hook(called).remove
    return remove
