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

from unstall.guest.patching import wrap_after

OnBoundary = Callable[[str, int], None]
"""A function that is called at each step boundary. Its first argument is what set the boundary: "optimizer", "loader"
or "forward". Its second argument is the `id` of the optimizer, data set or module. It must not raise an exception."""


class CapturedSteps:
    """Keeps the step boundaries that are set while a graph is captured, and sets them after each replay of the graph.

    Args:
        on_boundary: Called for each boundary of a replay, with the kind of what set it, and its `id`.
    """

    def __init__(self, on_boundary: OnBoundary) -> None:
        cuda = import_module("torch.cuda")
        self._noted = threading.local()
        self._of_graph: WeakKeyDictionary[Any, tuple[tuple[str, int], ...]] = WeakKeyDictionary()
        noted, of_graph = self._noted, self._of_graph

        def begun(*_: object, **__: object) -> None:
            noted.steps = ()

        def ended(graph: Any) -> None:
            if steps := getattr(noted, "steps", ()):
                of_graph[graph] = steps
            noted.steps = ()

        def replayed(graph: Any) -> None:
            for kind, who in of_graph.get(graph, ()):
                on_boundary(kind, who)

        with ExitStack() as undo:
            for name, after in (("capture_begin", begun), ("capture_end", ended), ("replay", replayed)):
                undo.callback(wrap_after(cuda.CUDAGraph, name, after))
            self._undo = undo.pop_all()

    def note(self, kind: str, who: int) -> bool:
        """Keeps a boundary, if the current stream is captured. Returns whether it is."""
        if not _is_capturing():
            return False
        self._noted.steps = (*getattr(self._noted, "steps", ()), (kind, who))
        return True

    def remove(self) -> None:
        """Removes the patches of torch's graphs."""
        self._undo.close()


def _is_capturing() -> bool:
    try:
        return bool(import_module("torch.cuda").is_current_stream_capturing())
    except RuntimeError:  # a torch without CUDA
        return False
