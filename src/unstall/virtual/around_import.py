"""Acting right before a module is imported and right after, without importing it ourselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def around_import(name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call `before` when the module `name` is looked for, which is before it is imported, and `after` once it has run.

    What `before` raises, the import raises; it is tried again at the next import. `before` may wait for the module's
    import itself, and is served first. The module must not have been imported.
    """
    sys.meta_path.insert(0, _Before(name, before, after))


class _Before:
    """Acts when the module is looked for, and leaves the finding to all others."""

    def __init__(self, name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._name = name
        self._before = before
        self._after = after

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        try:
            self._before()
        except BaseException:
            sys.meta_path.insert(0, self)
            raise
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self._listen(spec.loader)
                return spec
        return None

    def _listen(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # gone before the module runs, and sees its loader
            execute(module)
            self._after()

        loader.exec_module = exec_module
