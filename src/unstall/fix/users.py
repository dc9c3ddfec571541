"""What of a program is the user's, and not of a library: its code, classes and modules."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType

from unstall.locate.frameworks import is_framework

_HERE = str(Path(__file__).parent)


@lru_cache(maxsize=4096)
def is_users_file(file: str) -> bool:
    return not (file.startswith(_HERE) or is_framework(file) or "site-packages" in file or "dist-packages" in file)


def is_users_code(code: CodeType) -> bool:
    return is_users_file(code.co_filename)


def is_users_module(module: ModuleType) -> bool:
    if module.__name__ == "__main__":
        return True
    file = getattr(module, "__file__", None)
    return file is not None and is_users_file(file)


def is_users_class(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return module is not None and is_users_module(module)
