"""Reads the inputs of commands: files, pipes and stdin."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISFIFO
from typing import TYPE_CHECKING, BinaryIO

from unstall.cli._last import is_result
from unstall.cli._output import TRACES
from unstall.errors import TraceError, UsageError

if TYPE_CHECKING:
    from unstall.answers.report import Report
    from unstall.timeline.columns import Timeline

STDIN = "-"
_OTHER_ENDINGS = (".unstall", ".timeline")
_BEGINNINGS = (b"{", b"[", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")  # JSON, gzip, zstd, a saved timeline
_LONGEST_BEGINNING = 64


@contextmanager
def readable(path: str) -> Iterator[Path]:
    """During the block, there is a file with the content of `path` that can be read more than once.
    Yields its path.

    If `path` is a pipe or stdin ("-"), this file is a temporary copy. If the block raises
    TraceError about the copy, the error names `path` instead.
    """
    if not _is_pipe(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="unstall-") as folder:
        copy = Path(folder) / "piped"
        with copy.open("wb") as file:
            _spool(path, file)
        try:
            yield copy
        except TraceError as error:
            raise TraceError(str(error).replace(str(copy), name_of(path))) from error


def read_timeline(path: str, *, quiet: bool) -> Timeline:
    """Reads a trace or a saved timeline. Shows progress on stderr, unless `quiet` is set.

    Raises:
        TraceError: The file cannot be read, or has nothing to explain.
    """
    from unstall.cli._progress import loading
    from unstall.diagnose.input_check import load_usable

    with readable(path) as file, loading(str(file), quiet=quiet) as progress:
        try:
            timeline = load_usable(file, progress)
        except TraceError as error:
            from unstall.answers.saved import read_saved

            if _reads(read_saved, file):
                raise TraceError(f"{path}: this is a saved result; `unstall report {path}` shows it again") from error
            raise
    return timeline.with_meta(path=name_of(path)) if file != Path(path) else timeline


def read_report(path: str, *, quiet: bool, step: str | None = None, user: Sequence[str] = ()) -> Report:
    """Reads a saved result, or explains a trace or a saved timeline. Shows progress on stderr,
    unless `quiet` is set.

    Args:
        path: The file.
        quiet: Whether to show no progress.
        step: The name (or glob) of the annotation around one step. By default, steps are detected.
        user: Globs of the files that count as the user's code. By default, these are all files
            except framework files.

    Raises:
        TraceError: The file cannot be read.
        UsageError: No annotation has the name `step`.
    """
    from unstall.answers.report import Report, read_result

    with readable(path) as file:
        if is_result(file):
            return Report(read_result(file), None)
        from unstall.answers.explain import explain

        try:
            timeline = read_timeline(str(file), quiet=quiet)
        except TraceError:
            if not _reads(read_result, file):  # with its keys in another order
                raise
            return Report(read_result(file), None)
    try:
        return explain(timeline.with_meta(path=name_of(path)), step=step, user=user)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def looks_recorded(word: str) -> bool:
    """Returns whether a word of the command line is the path of a recorded run, and not that of a
    program.

    If the ending of the path is not known, the first bytes of the file at this path decide.
    """
    if word == STDIN or word.lower().endswith((*TRACES, *_OTHER_ENDINGS)):
        return True
    path = Path(word)
    if word.endswith(".py") or not path.is_file():
        return _is_pipe(word)
    with suppress(OSError), path.open("rb") as file:
        return file.read(_LONGEST_BEGINNING).lstrip().startswith(_BEGINNINGS)
    return False


def _reads(read: Callable[[Path], object], file: Path) -> bool:
    with suppress(TraceError):
        read(file)
        return True
    return False


def name_of(path: str) -> str:
    """Returns the name of an input for reports: "stdin" if `path` is "-", and `path` if it is not."""
    return "stdin" if path == STDIN else path


def _is_pipe(path: str) -> bool:
    try:
        return path == STDIN or S_ISFIFO(Path(path).stat().st_mode)
    except OSError:
        return False


def _spool(path: str, file: BinaryIO) -> None:
    if path != STDIN:
        with Path(path).open("rb", buffering=0) as pipe:
            shutil.copyfileobj(pipe, file)
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-: nothing is piped to stdin; give a file, or zcat TRACE | unstall …")
    shutil.copyfileobj(sys.stdin.buffer, file)
