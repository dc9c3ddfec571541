"""The program's own `torch.profiler`: torch has one profiler at a time, and fails, or crashes, where another begins."""

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
    """Tells of the program's profilers, from `watch` to `remove`; not of those within `steps.ignoring_steps()`."""

    def __init__(self, begins: Callable[[], None]) -> None:
        """`begins` is called before one does, if only its warm-up; it must not raise."""
        self.is_on = False
        self._may_have_begun = "torch" in sys.modules
        self._begins = begins
        self._undo = ExitStack()

    def watch(self) -> None:
        """Watch, and look for one that has begun already. torch must have been imported."""

        def begin(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if steps.steps_are_ignored():
                return original(*args, **kwargs)
            self._begins()
            before, self.is_on = self.is_on, True
            try:
                return original(*args, **kwargs)
            except BaseException:  # it does not begin
                self.is_on = before
                raise

        def end(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not steps.steps_are_ignored():
                self.is_on = False
            return original(*args, **kwargs)

        profiler = import_module("torch.autograd.profiler")
        for name, call in (("_prepare_profiler", begin), ("_enable_profiler", begin), ("_disable_profiler", end)):
            if hasattr(profiler, name):  # they are torch's own affair, and may have other names in another version
                self._undo.callback(wrap(profiler, name, call))
        self.is_on = self.is_on or (self._may_have_begun and _is_under_way(profiler))

    def remove(self) -> None:
        """Leave torch as it was."""
        self._undo.close()


def _is_under_way(profiler: Any) -> bool:
    """Whether a profile has begun and not ended: while one warms up, torch itself does not say so."""
    profile = getattr(profiler, "profile", None)
    # By type: isinstance would run the program's own __class__ properties.
    profiles = [each for each in gc.get_objects() if type(each) is profile]
    return any(getattr(each, "entered", False) and getattr(each, "kineto_results", 0) is None for each in profiles)
