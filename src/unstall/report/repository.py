"""Paths of source files relative to their repository. Continuous integration finds files by these paths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from unstall.frameworks import is_installed
from unstall.patches.source import path_below
from unstall.result import Where


def in_repository(files: Iterable[str]) -> dict[str, str]:
    """Finds the files that are in the repository of the current folder.

    Returns {file: path relative to the root of the repository}. The result has no files of installed packages. No file
    is opened.
    """
    here = Path().resolve()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    own = [file for file in files if not is_installed(file)]
    found = {file: path_below(file, here) or path_below(file, root) for file in own}
    return {file: path.relative_to(root).as_posix() for file, path in found.items() if path}


def place_in_repository(where: Where, in_repository: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Returns the (file, line) of a place.

    If the place is outside the repository, and its caller is inside, returns the (file, line) of the caller instead.
    """
    caller = where.called_from
    if where.file and where.file in in_repository:
        return in_repository[where.file], where.line
    if caller and caller.file in in_repository:
        return in_repository[caller.file], caller.line
    return where.file, where.line
