"""The rules: each file has one function with the file's name. The function takes a `Run` and
returns a list of findings. A new file here adds a new rule.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator

from unstall.diagnose.run import Run
from unstall.result import Finding

Rule = Callable[[Run], list[Finding]]


def all_rules() -> Iterator[Rule]:
    """Yields every rule of this package, sorted by name. A rule is a function that takes a `Run`
    and returns a list of findings.
    """
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        rule: Rule = getattr(importlib.import_module(f"{__name__}.{module.name}"), module.name)
        yield rule
