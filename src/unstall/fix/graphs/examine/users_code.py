"""Decides whether code, classes and modules belong to the user or to a library."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType

from unstall.frameworks import OURS, is_framework


@lru_cache(maxsize=4096)
def is_users_file(file: str) -> bool:
    return not (file.startswith(OURS) or is_framework(file) or "site-packages" in file or "dist-packages" in file)


@lru_cache(maxsize=4096)
def is_library_file(file: str) -> bool:
    """Returns whether the source file belongs to an installed package. Unstall, and frameworks such as torch, do not
    count as installed packages."""
    return not (file.startswith(OURS) or is_framework(file)) and not is_users_file(file)


def installed_path(file: str) -> str:
    """Returns the part of a path below site-packages, such as "transformers/masking_utils.py". Returns the whole path
    if it has no such folder."""
    parts = Path(file).parts
    at = max((i for i, part in enumerate(parts) if part in ("site-packages", "dist-packages")), default=-1)
    return "/".join(parts[at + 1 :])


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
