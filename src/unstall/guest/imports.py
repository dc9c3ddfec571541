"""Acting once a module has been imported, without importing it: nothing comes earlier than the program wants it."""

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
    """Call `act` once the module `name` has been executed; at once where it is there already.

    Returns what takes the waiting back. An import that fails raises as it would have, and ends the waiting.
    """
    if name in sys.modules:
        act()
        return lambda: None
    finder = _Finder(name, act)
    sys.meta_path.insert(0, finder)
    return finder.remove


def waiting_for(name: str) -> list[_Finder]:
    """Those that wait for the import of the module `name`."""
    return [finder for finder in sys.meta_path if isinstance(finder, _Finder) and finder.name == name]


def finders_behind(own: object) -> list[MetaPathFinderProtocol]:
    """Those asked after `own`. Two that wait for one module would ask each other for ever if each asked all."""
    finders = list(sys.meta_path)
    behind = finders[finders.index(own) + 1 :] if own in finders else finders
    return [finder for finder in behind if hasattr(finder, "find_spec")]


class _Finder:
    """Finds one module by way of all other finders, and has its loader tell when it has been executed."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name = name
        self._act = act

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        for finder in finders_behind(self):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                # A loader that takes no attribute cannot tell; the module is imported all the same.
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

        def tell(_module: ModuleType) -> None:
            if waiting:
                self._act()

        loader.exec_module = in_turn(leave, execute, tell)  # type: ignore[method-assign]
