"""Calls an entry's function until the run is over: python -m unstall.auditing.call FILE_OR_MODULE:NAME

Each call is a step. `unstall run --stop` ends the process once it has recorded enough steps.

With --names FILE, the argument is FILE_OR_MODULE without a function's NAME, and no function is called. Instead, the
names that its `entries()` offers are written to FILE, as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from unstall.guest.steps import ignoring_steps, step

OFFER = "entries"
"""The name of a function by which a file lists programs to audit. The function returns a dict. Each
key is the name of a program. Each value is a function that prepares the program, and returns the
function to call in each step.
"""


def main() -> None:
    """Calls the function that the command line names, until the process is ended.

    With --names, calls no such function. Instead, writes the names of the programs that a file
    lists.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    parser.add_argument("entry")
    parser.add_argument("--names", type=Path)
    given = parser.parse_args()
    if given.names is None:
        call_until_stopped(call_of(given.entry))
    else:
        given.names.write_text(json.dumps(names_of(given.entry)))


def call_of(entry: str) -> Callable[[], object]:
    """Returns the function to call in each step.

    Args:
        entry: The function's name, in the form FILE_OR_MODULE:NAME. NAME may also be a name that
            the function `entries()` of the file or module lists.

    Raises:
        SystemExit: The file or module has no function of this name. The exception has a message.
    """
    source, _, name = entry.partition(":")
    module = _module_of(source)
    offered = getattr(module, OFFER)() if hasattr(module, OFFER) else {}
    if name in offered:
        prepared: Callable[[], object] = offered[name]()
        return prepared
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        beside = f", and its {OFFER}() offers none of this name" if offered else ""
        sys.exit(f"{source} has no function {name}{beside}")
    call: Callable[[], object] = found
    return call


def names_of(source: str) -> list[str]:
    """Returns the names in the dict that the function `entries()` of a file or module returns.
    `source` is the file or module.

    Raises:
        SystemExit: The file defines no `entries()`, or a name is not a string. The exception has a
            message.
    """
    module = _module_of(source)
    if not hasattr(module, OFFER):
        sys.exit(f"{source} defines no {OFFER}(), so there are no names to choose from")
    names = list(getattr(module, OFFER)())
    for name in names:
        if not isinstance(name, str):
            sys.exit(f"{source}: {OFFER}() must return a dict by name, and one of its keys is {name!r}")
    return names


def call_until_stopped(call: Callable[[], object]) -> NoReturn:
    """Calls a function until the process is ended. Each call is one step. Steps that the function
    itself marks are ignored.
    """
    while True:
        with ignoring_steps():
            call()
        step()


def _module_of(source: str) -> ModuleType:
    """Imports a module from the current folder, or a file (FILE.py). For a file, puts its folder first on `sys.path`,
    as Python does for a script."""
    if not source.endswith(".py"):
        return importlib.import_module(source)
    path = Path(source)
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
