"""Acting before and after a module is imported, without importing it: nothing comes before the program wants it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

from unstall.guest.patching import in_turn

if TYPE_CHECKING:
    from _typeshed.importlib import MetaPathFinderProtocol

Cancel = Callable[[], None]


def when_imported(name: str, act: Callable[[], None]) -> Cancel:
    """Call `act` once the module `name` has been executed; at once if it has been already.

    Returns a function that cancels this. An import that fails raises as it would have, and cancels it too.
    """
    if name in sys.modules:
        act()
        return lambda: None
    finder = _Finder(name, act)
    sys.meta_path.insert(0, finder)
    return finder.remove


def around_import(name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call `before` right before the module `name` is made, and `after` once it has run.

    Who only asks where the module is, changes nothing. What `before` raises, the import raises; it is tried again at
    the next import. `before` may wait for the module's import itself (`when_imported`), and is served first. The module
    must not have been imported.
    """
    sys.meta_path.insert(0, _AroundFinder(name, before, after))


def _waiting_for(name: str) -> list[_Finder]:
    """Those that wait for the import of the module `name`."""
    return [finder for finder in sys.meta_path if isinstance(finder, _Finder) and finder.name == name]


def _finders_behind(own: object) -> list[MetaPathFinderProtocol]:
    """Those asked after `own`. Two that wait for one module would ask each other for ever if each asked all."""
    finders = list(sys.meta_path)
    behind = finders[finders.index(own) + 1 :] if own in finders else finders
    return [finder for finder in behind if hasattr(finder, "find_spec")]


class _Finder:
    """Finds one module by way of all other finders, and has its loader call back once it has been executed."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name = name
        self._act = act

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        for finder in _finders_behind(self):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                # A loader that takes no attribute cannot call back; the module is imported all the same.
                with contextlib.suppress(AttributeError):
                    self.listen(spec)
                return spec
        return None

    def remove(self) -> None:
        """Wait no longer."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def listen(self, spec: ModuleSpec) -> None:
        """Tell when the module of that spec has been executed."""
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module
        waiting = False

        def leave(_module: ModuleType) -> None:
            # Gone before the module runs: what it sees of its loader is what it would have seen. A loader that its
            # finder keeps was listened to once for each time that somebody only asked where the module is.
            nonlocal waiting
            vars(loader).pop("exec_module", None)
            waiting = self in sys.meta_path
            self.remove()

        def executed(_module: ModuleType) -> None:
            if waiting:
                self._act()

        loader.exec_module = in_turn(leave, execute, executed)  # type: ignore[method-assign]


class _AroundFinder:
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
        for finder in _finders_behind(self):
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
            for waiting in _waiting_for(self._name):
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
