"""Finds the last run in a folder: the newest trace or saved result in it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from unstall.errors import UsageError

TRACE_ENDING = ".trace.json.gz"
"""The ending of a trace's name, if `unstall run` chooses the name itself."""
_RESULT_BEGINS = re.compile(rb'\s*\{\s*"accounts":\s*\{')  # keys are sorted, so the schema stands at the end
_RESULT_HOLDS = re.compile(rb'"schema":\s*"unstall\.explain/')
_RESULT_HEAD_BYTES = 64
_RESULT_BYTES = 64 << 20
_PAGE_HOLDS = b'<meta name="generator" content="unstall">'
_PAGE_HEAD_BYTES = 2048  # the page's <meta> elements are among its first
_GZIP_HEAD = struct.Struct("<2s2xI")  # RFC 1952: the magic, and when the content was made, in s
_GZIP_MAGIC = b"\x1f\x8b"


def last_run(folder: Path = Path()) -> Path:
    """Returns the newest trace or saved result in a folder.

    The age of a file is that of its content, so a copy of a file is as old as the original.

    Raises:
        UsageError: The folder has no trace and no saved result.
    """
    found = _last_made([*_traces(folder), *_results(folder)])
    if found is None:
        raise UsageError(
            f"no run was recorded here: no *{TRACE_ENDING} and no saved result is in this folder. Name a FILE, or "
            "record one: unstall run SCRIPT"
        )
    return found


def last_page(folder: Path = Path()) -> Path | None:
    """Returns the newest HTML report in a folder. Returns None if there is none, or if a trace or a
    saved result in the folder is newer than the report.
    """
    page = _newest(path for path in folder.glob("*.html") if is_page(path))
    run = _last_made([*_traces(folder), *_results(folder)])
    return page if page and (run is None or page.stat().st_mtime >= run.stat().st_mtime) else None


def is_page(path: Path) -> bool:
    """Returns whether a file is an HTML report of unstall."""
    return path.is_file() and _PAGE_HOLDS in _head(path, _PAGE_HEAD_BYTES)


def is_result(path: Path) -> bool:
    """Returns whether a file is a result that a command saved as JSON. The beginning of the file
    and its field `schema` decide.
    """
    if not path.is_file() or not _RESULT_BEGINS.match(_head(path, _RESULT_HEAD_BYTES)):
        return False
    return _RESULT_HOLDS.search(_head(path, _RESULT_BYTES)) is not None


def _traces(folder: Path) -> Iterator[Path]:
    """Yields the traces in a folder. For a run of several ranks, yields only the trace of rank 0, because only this
    trace was explained.
    """
    for path in folder.glob(f"*{TRACE_ENDING}"):
        _, ranked, number = path.name.removesuffix(TRACE_ENDING).rpartition("-rank")
        if path.is_file() and not (ranked and number.partition("-")[0] not in ("", "0")):
            yield path


def _results(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob("*.json") if is_result(path))


def _newest(paths: Iterator[Path]) -> Path | None:
    return max(paths, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)


def _last_made(paths: list[Path]) -> Path | None:
    """Returns the file with the newest content. If this file has copies, returns the copy that was written first."""
    return max(paths, key=lambda path: (_made_ns(path), -path.stat().st_mtime_ns, path.name), default=None)


def _made_ns(path: Path) -> int:
    """Returns when a file's content was made, in ns since the epoch.

    If the file has a gzip header with a time, returns this time, which is the same in a copy. Otherwise returns the
    time at which the file was written.
    """
    head = _head(path, _GZIP_HEAD.size)
    if len(head) == _GZIP_HEAD.size:
        magic, made_s = _GZIP_HEAD.unpack(head)
        if magic == _GZIP_MAGIC and made_s:
            return int(made_s) * 10**9
    return path.stat().st_mtime_ns


def _head(path: Path, count: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError:
        return b""
