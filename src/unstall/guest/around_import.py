"""Acting right before a module is imported and right after, without importing it ourselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from unstall.guest.imports import finders_behind, waiting_for
from unstall.guest.patching import in_turn


def around_import(name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call `before` right before the module `name` is made, and `after` once it has run.

    Who only asks where the module is, changes nothing. What `before` raises, the import raises; it is tried again at
    the next import. `before` may wait for the module's import itself (`when_imported`), and is served first. The module
    must not have been imported.
    """
    sys.meta_path.insert(0, _Around(name, before, after))


class _Around:
    """Finds one module by way of all other finders, and has its loader act when the module is made."""

    def __init__(self, name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._name = name
        self._before = before
        self._after = after

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        for finder in finders_behind(self):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._listen(spec)
                return spec
        return None

    def _listen(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None or "create_module" in vars(loader):
            return
        create = loader.create_module

        def create_module(spec: ModuleSpec) -> ModuleType | None:
            self._before()
            vars(loader).pop("create_module", None)  # gone before the module sees its loader
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            for waiting in waiting_for(self._name):
                waiting.listen(spec)
            self._tell_after(spec)
            return create(spec)

        loader.create_module = create_module  # type: ignore[method-assign]

    def _tell_after(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        assert loader is not None
        execute = loader.exec_module

        def leave(_module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)

        loader.exec_module = in_turn(leave, execute, lambda _module: self._after())  # type: ignore[method-assign]
