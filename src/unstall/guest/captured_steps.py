"""Steps that a program captures into CUDA graphs of its own: each replay is a step, and runs no Python code in which a
step boundary could be found.

`unstall.graphed` repeats the boundaries of its graphs itself (`step_replay.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from unstall.guest import device, steps
from unstall.guest.patching import wrap_after

OnBoundary = Callable[[str, int], None]
"""A function that is called at each step boundary. Its first argument is what set the boundary: "optimizer", "loader"
or "forward". Its second argument is the `id` of the optimizer, data set or module. It must not raise an exception."""


class CapturedSteps:
    """Keeps the step boundaries that are set while a graph is captured, and sets them after each replay of the graph.
    A recording that has not begun by then waits for steps after the capture, as it does after a check of `graphed`.

    Args:
        on_boundary: Called for each boundary of a replay, with the kind of what set it, and its `id`.
    """

    def __init__(self, on_boundary: OnBoundary) -> None:
        torch, self._noted = import_module("torch"), threading.local()
        of_graph: WeakKeyDictionary[Any, tuple[tuple[str, int, bool], ...]] = WeakKeyDictionary()
        noted = self._noted

        def begun(*_: object, **__: object) -> None:
            noted.steps = ()
            with steps.proving():  # what comes before is a warm-up of what the graph replaces
                pass

        def ended(graph: Any) -> None:
            of_graph[graph] = getattr(noted, "steps", ())
            noted.steps = ()

        def replayed(graph: Any) -> None:
            before, noted.before = getattr(noted, "before", None), None
            for kind, who, grad_was_enabled in of_graph.get(graph, ()):
                # A module whose call replays the graph (torch.cuda.make_graphed_callables) has set the boundary itself.
                if steps.steps_are_ignored() or (kind, who) == before:
                    continue
                with torch.set_grad_enabled(grad_was_enabled):
                    on_boundary(kind, who)

        with ExitStack() as undo:
            for name, after in (("capture_begin", begun), ("capture_end", ended), ("replay", replayed)):
                undo.callback(wrap_after(torch.cuda.CUDAGraph, name, after))
            self._undo = undo.pop_all()

    def note(self, kind: str, who: int) -> bool:
        """Notes a boundary that is set on this thread. Returns whether it is kept for replays, since the current stream
        is captured.
        """
        if not device.capturing():
            self._noted.before = kind, who
            return False
        grad_is_enabled = import_module("torch").is_grad_enabled()
        self._noted.steps = (*getattr(self._noted, "steps", ()), (kind, who, grad_is_enabled))
        return True

    def remove(self) -> None:
        """Removes the patches of torch's graphs."""
        self._undo.close()
