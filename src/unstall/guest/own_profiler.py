"""Detects whether the program uses `torch.profiler`. torch allows only one profiler at a time: torch fails or crashes
if a second profiler begins."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from unstall.guest import steps
from unstall.guest.patching import wrap


class OwnProfiler:
    """Detects when the program starts a profiler of torch, and whether a profiler is running (`is_on`). Ignores
    profilers that start inside a block of `steps.ignoring_steps()`."""

    def __init__(self, begins: Callable[[], None]) -> None:
        """`begins` is called before a profiler begins, even if the profiler only begins its warm-up. `begins` must not
        raise an exception."""
        self.is_on = False
        self._may_have_begun = "torch" in sys.modules
        self._begins = begins
        self._undo = ExitStack()

    def watch(self) -> None:
        """Starts to watch for profilers. Also checks whether a profiler is already running. torch must be imported."""

        def begin(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if steps.steps_are_ignored():
                return original(*args, **kwargs)
            self._begins()
            before, self.is_on = self.is_on, True
            try:
                return original(*args, **kwargs)
            except BaseException:  # then it does not begin
                self.is_on = before
                raise

        def end(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not steps.steps_are_ignored():
                self.is_on = False
            return original(*args, **kwargs)

        profiler = import_module("torch.autograd.profiler")
        for name, call in (("_prepare_profiler", begin), ("_enable_profiler", begin), ("_disable_profiler", end)):
            if hasattr(profiler, name):  # internals of torch, which may have other names in another version
                self._undo.callback(wrap(profiler, name, call))
        self.is_on = self.is_on or (self._may_have_begun and _is_under_way(profiler))

    def remove(self) -> None:
        """Removes the patches from torch."""
        self._undo.close()


def _is_under_way(profiler: Any) -> bool:
    """Returns whether a profiler of torch has begun and has not ended. This includes a profiler that is warming up,
    which torch itself does not report."""
    profile = getattr(profiler, "profile", None)
    # Compares types because isinstance would run the program's own __class__ properties.
    profiles = [each for each in gc.get_objects() if type(each) is profile]
    return any(getattr(each, "entered", False) and getattr(each, "kineto_results", 0) is None for each in profiles)
