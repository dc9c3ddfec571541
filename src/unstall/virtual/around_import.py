"""Acting right before a module is executed and right after, without importing it ourselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from unstall.record.importing import when_imported


def around_import(name: str, before: Callable[[], None], after: Callable[[], None]) -> Callable[[], None]:
    """Call `before` when the module `name` is about to run and `after` once it has; returns what takes that back.

    What `before` raises, the import raises. The module must not have been imported.
    """
    first = _Before(name, before)
    stop_after = when_imported(name, after)
    sys.meta_path.insert(0, first)

    def cancel() -> None:
        first.remove()
        stop_after()

    return cancel


class _Before:
    """Finds one module by way of all other finders, and has its loader act before it executes it."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name = name
        self._act = act
        self._asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self._asking:
            return None
        self._asking = True
        try:
            spec = next(
                (
                    spec
                    for finder in list(sys.meta_path)
                    if finder is not self and hasattr(finder, "find_spec")
                    if (spec := finder.find_spec(name, path, target)) is not None
                ),
                None,
            )
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            self._listen(spec.loader)
        return spec

    def remove(self) -> None:
        """Act no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _listen(self, loader: object) -> None:
        execute = loader.exec_module  # type: ignore[attr-defined]

        def exec_module(module: ModuleType) -> None:
            waiting = self in sys.meta_path
            self.remove()
            if waiting:
                self._act()
            execute(module)

        loader.exec_module = exec_module  # type: ignore[attr-defined]
