"""Runs callbacks before and after the program imports a module."""

from __future__ import annotations

import contextlib
import importlib
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
    """Calls `act` after the code of the module `name` has run. If the module is already imported, calls `act`
    immediately. If another thread is importing the module, waits until this import has ended, and then calls `act`.

    Returns a function that cancels the callback. If the import fails, the import raises its exception as usual, and the
    callback is cancelled.
    """
    finder = _Finder(name, act)
    if name not in sys.modules:
        sys.meta_path.insert(0, finder)
    if name in sys.modules:  # asked again: an import in another thread may have begun before the finder was there
        with contextlib.suppress(Exception):  # if the import fails, the program sees that where it imports the module
            importlib.import_module(name)  # waits for the other thread, and imports nothing unless that one fails
        if name in sys.modules:
            finder.act()
    return finder.remove


def around_import(name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Calls `before` right before the module `name` is created, and `after` right after the module's code has run.

    The module must not be imported yet. A query for the module's spec, such as `importlib.util.find_spec`, does not
    import the module, and calls neither `before` nor `after`. If `before` raises an exception, the import statement
    raises this exception, and the next import of the module calls `before` again. If `before` calls `when_imported` for
    the same module, the callback of `when_imported` runs before `after`.
    """
    sys.meta_path.insert(0, _AroundFinder(name, before, after))


def _waiting_for(name: str) -> list[_Finder]:
    """Returns the finders of `when_imported` that wait for the import of the module `name`."""
    return [finder for finder in sys.meta_path if isinstance(finder, _Finder) and finder.name == name]


def _finders_behind(own: object) -> list[MetaPathFinderProtocol]:
    """Returns the finders after `own` in `sys.meta_path`. A finder asks only these finders for a spec. If two finders
    for one module asked all other finders, they would call each other forever."""
    finders = list(sys.meta_path)
    behind = finders[finders.index(own) + 1 :] if own in finders else finders
    return [finder for finder in behind if hasattr(finder, "find_spec")]


class _Finder:
    """An import finder for one module. It asks the finders that follow in `sys.meta_path` for the module's spec. It
    then makes the module's loader call the callback after the module's code has run."""

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
                # A loader without settable attributes cannot call back; the module is still imported.
                with contextlib.suppress(AttributeError):
                    self.listen(spec)
                return spec
        return None

    def remove(self) -> None:
        """Cancels the callback, so that the import of the module does not call `act`."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def act(self) -> None:
        """Calls the callback, unless it was called before."""
        self.remove()
        act, self._act = self._act, lambda: None
        act()

    def listen(self, spec: ModuleSpec) -> None:
        """Makes the loader call the callback after the loader has run the code of the module. `spec` is the spec of the
        module."""
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module
        waiting = False

        def leave(_module: ModuleType) -> None:
            # Removed before the module runs, so that it sees its loader unchanged. A loader that its finder keeps was
            # patched once for each query for the module's spec.
            nonlocal waiting
            vars(loader).pop("exec_module", None)
            waiting = self in sys.meta_path
            self.remove()

        def executed(_module: ModuleType) -> None:
            if waiting:
                self.act()

        loader.exec_module = in_turn(leave, execute, executed)  # type: ignore[method-assign]


class _AroundFinder:
    """An import finder for one module. The finder asks the finders that follow in `sys.meta_path` for the module's
    spec. The finder makes the module's loader call `before` right before the module is created, and `after` right after
    the module's code has run."""

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
            vars(loader).pop("create_module", None)  # removed before the module sees its loader
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
