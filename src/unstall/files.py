"""Writes files atomically. Refuses to overwrite files that a command reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from unstall.errors import UsageError


def write_atomically(path: str | Path, data: bytes) -> None:
    """Writes bytes to a file. The file at `path` is complete at every moment: `data` goes to a
    temporary file beside it, which is then renamed to `path`.

    If `path` exists and is not a regular file (such as `/dev/stdout` or a pipe), `data` is written
    to it directly.

    Raises:
        UsageError: Writing fails.
    """
    with writing_atomically(path) as file:
        file.write(data)


@contextmanager
def writing_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """Yields a temporary file to write to. At the end of the `with` block, the file is renamed to
    `path`. If the block raises, what was at `path` stays unchanged.

    If `path` exists and is not a regular file (such as `/dev/stdout` or a pipe), yields `path`
    itself as a file to write to.

    Raises:
        UsageError: Writing fails.
    """
    target = Path(path)
    temporary = None
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as straight:
                yield straight
            return
        target = target.resolve()
        temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
        with temporary.open("xb") as beside:
            try:
                if target.exists():
                    temporary.chmod(target.stat().st_mode & 0o777)
                yield beside
                beside.close()
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        if error.filename not in (None, str(target), str(temporary)):
            raise  # by the block, of another file
        reason = error.strerror or str(error)
        raise UsageError(f"{path}: cannot be written: {reason}. Choose another place for the output") from error


def check_targets(targets: Sequence[str | Path], inputs: Sequence[str | Path] = ()) -> None:
    """Checks that all of the output files `targets` can be written safely.

    Args:
        targets: The paths of the output files.
        inputs: The paths of files that are read.

    Raises:
        UsageError: A target is a folder, its folder does not exist, or its file is already an input
            or an earlier target. Paths that lead to one file through links name the same file. A
            path that is not a regular file (such as `/dev/stdout` or a pipe) may occur twice among
            the targets.
    """
    taken = [(Path(path), "it is the input, which would be lost") for path in inputs]
    for target in map(Path, targets):
        if target.exists() and not target.is_file() and not target.is_dir():
            continue
        reasons = [reason for path, reason in taken if _is_same(target, path)]
        if target.is_dir():
            reasons.append("it is a folder")
        elif not target.resolve().parent.is_dir():
            reasons.append(f"there is no folder {target.resolve().parent}")
        if reasons:
            raise UsageError(f"{target}: cannot be written: {reasons[0]}. Choose another place for the output")
        taken.append((target, "another output goes there"))


def _is_same(one: Path, other: Path) -> bool:
    """Returns whether both paths name the same file, also through links. Neither file has to exist."""
    try:
        return one.samefile(other)
    except OSError:
        return one.resolve() == other.resolve()
