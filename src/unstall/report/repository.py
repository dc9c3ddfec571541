"""Paths of source files relative to the root of the git repository. Continuous integration finds
files by these paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from unstall.frameworks import is_installed
from unstall.patches.source import path_below
from unstall.result import Where


def in_repository(files: Iterable[str]) -> dict[str, str]:
    """Finds those of the given `files` that lie in the git repository around the current folder.

    If there is no such repository, the current folder takes its place. Files of installed packages
    are left out. No file is opened.

    Returns:
        A dict. A key is an element of `files`, its value the file's path relative to the root of
        the repository.
    """
    here = Path().resolve()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    own = [file for file in files if not is_installed(file)]
    found = {file: path_below(file, here) or path_below(file, root) for file in own}
    return {file: path.relative_to(root).as_posix() for file, path in found.items() if path}


def place_in_repository(where: Where, in_repository: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Returns the `(file, line)` that continuous integration should show for the place `where`.

    If the file of the place is a key of `in_repository`, that is the place. Otherwise, if the file
    of its caller is a key, that is the caller. In both cases, the returned file is the value of the
    key. If neither file is a key, the file and line of `where` are returned as they are; both may
    be None.
    """
    caller = where.called_from
    if where.file and where.file in in_repository:
        return in_repository[where.file], where.line
    if caller and caller.file in in_repository:
        return in_repository[caller.file], caller.line
    return where.file, where.line
