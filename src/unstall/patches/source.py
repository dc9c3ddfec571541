"""Reads the Python files whose paths stand in a trace, if they are below folders that the user
opened.

A trace is untrusted, and so are the paths in it. All symbolic links in a path are followed first. A
file is read only if the path that results lies below one of the opened folders.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unstall.frameworks import is_installed

MAX_BYTES = 2 << 20  # the largest files of Python's own standard library and of torch are below 1 MiB
_AROUND = 4  # lines shown before and after a line
AROUND_A_CALL = 1  # lines shown before and after a line that calls the function with the finding


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file.

    Attributes:
        name: The file's path relative to `folder`, with forward slashes.
        folder: The folder that the user opened and below which the file is.
        text: The file's text.
        changed_ns: The time when the file was last written, in ns since 1970 (st_mtime_ns).
    """

    name: str
    folder: Path
    text: str
    changed_ns: int  # when it was last written, as st_mtime_ns


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A line of a file, with some lines before and after it.

    Attributes:
        first: Number of the first line in `lines`, counted from 1; 0 if the lines cannot be shown.
        lines: The text of the lines; empty if they cannot be shown.
        line: Number of the line that the excerpt is about.
        why_not: Why the lines cannot be shown; "" if they can.
    """

    first: int
    lines: tuple[str, ...]
    line: int
    why_not: str = ""


def read_source(file: str, folders: Sequence[Path], *, by_ending: bool = False) -> Source | str:
    """Reads the Python file that has the path `file` in a trace. Returns a phrase that says why if
    the file cannot be read.

    Args:
        file: The path in the trace: absolute, or relative to the folder in which the traced program
            was started.
        folders: The folders below which files may be read. They are searched in order.
        by_ending: Whether to also search the folders for the last parts of the path, such as
            `model/train.py`. This finds the file in a copy of the program. Files of libraries are
            never searched for in this way, because a file of the program may have the same name.
    """
    if not file.endswith(".py") or "\0" in file:
        return "it is no file of Python"
    outside = "it is not below the current folder: --source DIR opens another"
    why = outside
    for folder in folders:
        root = folder.resolve()
        for name in _names(file, root, by_ending=by_ending and not is_installed(file)):
            found = _read(root, name)
            if isinstance(found, Source):
                return found
            why = found or why
    return why


def path_below(file: str, folder: Path) -> Path | None:
    """Returns the path of the Python file below `folder` that has the path `file` in a trace.
    Symbolic links in the returned path have been followed. The file is not opened.

    Returns None if there is no such file below the folder.
    """
    if not file.endswith(".py") or "\0" in file:
        return None
    root = folder.resolve()
    for name in _names(file, root, by_ending=False):
        try:
            path = (root / name).resolve(strict=True)
            if path.is_relative_to(root) and path.is_file():
                return path
        except (OSError, RuntimeError):
            continue
    return None


def excerpt(source: Source | str, line: int, around: int = _AROUND) -> Excerpt:
    """Returns line number `line` of a file, with up to `around` lines before it and after it. Line
    numbers begin at 1.

    Args:
        source: The file, or a phrase that says why it was not read. With a phrase, the excerpt has
            no lines.
        line: The number of the line.
        around: How many lines to take before the line, and how many after it.
    """
    if isinstance(source, str):
        return Excerpt(0, (), line, f"not shown: {source}")
    lines = source.text.split("\n")
    if not 1 <= line <= len(lines):
        return Excerpt(0, (), line, f"not shown: {source.name} has {len(lines):,} lines, so it was changed since")
    first = max(line - around, 1)
    return Excerpt(first, tuple(lines[first - 1 : line + around]), line)


def _names(file: str, root: Path, *, by_ending: bool) -> list[PurePosixPath]:
    """Returns the paths, relative to `root`, at which the file may be that has the path `file` in a
    trace.

    Args:
        file: The path in the trace.
        root: The folder below which files may be read, with links followed.
        by_ending: Whether to also return each ending of the path, such as `model/train.py` and
            `train.py`.
    """
    path = PurePosixPath(file.replace("\\", "/"))
    if path.is_absolute():
        below = [PurePosixPath(path.relative_to(root.as_posix()))] if path.is_relative_to(root.as_posix()) else []
    else:
        below = [path]
    parts = path.parts[1:] if path.is_absolute() else path.parts
    endings = [PurePosixPath(*parts[start:]) for start in range(len(parts))] if by_ending else []
    return [name for name in [*below, *endings] if ".." not in name.parts and not name.is_absolute()]


def _read(root: Path, name: PurePosixPath) -> Source | str:
    """Returns the file `name` below `root`, or a phrase that says why it was not read. Returns ""
    if there is no such file.
    """
    try:
        path = (root / name).resolve(strict=True)
        if not path.is_relative_to(root):
            return "it is a link to another folder"
        # The path has no links. If the file is replaced now, a link is not followed, and opening a pipe does not wait.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, RuntimeError):
        return ""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        return "it is no regular file"
    with os.fdopen(handle, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return f"it is larger than {MAX_BYTES >> 20} MiB"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return "it is no text" if "\0" in text else Source(str(name), root, text, status.st_mtime_ns)
