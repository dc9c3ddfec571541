"""Steps that a function marks to a recording, as by its optimizer: a replay calls none of that, and marks them anew."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from unstall.record import active, marks
from unstall.record.tally import FORWARD


class Marked(NamedTuple):
    """A mark, and whether autograd was on: that decides whether a call of a model may be a part of a training step."""

    kind: str
    who: int
    grad_was_enabled: bool


@contextmanager
def noted() -> Iterator[list[Marked]]:
    """The marks that this thread makes, in order; of a recording that begins later too."""
    found: list[Marked] = []
    thread = threading.get_ident()

    def note(kind: str, who: int) -> None:
        if threading.get_ident() == thread:
            found.append(Marked(kind, who, torch.is_grad_enabled()))

    with ExitStack() as undo:
        undo.callback(marks.install(note).remove)
        undo.enter_context(active.noting(note))
        if sys.version_info < (3, 12):  # where a recording sees no calls of models, it sees those that graphs serve
            undo.callback(_watch_models(note))
        yield found


def mark_again(steps: Sequence[Marked]) -> None:
    """A graph has served a call of the function that made these marks."""
    recording = active.current()
    if recording is not None:
        for kind, who, grad_was_enabled in steps:
            with torch.set_grad_enabled(grad_was_enabled):
                recording.mark(kind, who)


def _watch_models(note: Callable[[str, int], None]) -> Callable[[], None]:
    def called(module: torch.nn.Module, _: Any) -> None:
        if marks.is_outermost(sys._getframe(1)):
            note(FORWARD, id(module))

    remove: Callable[[], None] = torch.nn.modules.module.register_module_forward_pre_hook(called).remove
    return remove
