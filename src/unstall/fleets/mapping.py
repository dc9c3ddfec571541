"""Reads the trace of one rank and makes a summary of it, on the machine that has the trace. Summaries are cached. The
cache finds a summary by the content of its trace."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from unstall._version import __version__
from unstall.errors import TraceError, UnstallError, UsageError
from unstall.files import write_atomically
from unstall.fleets.summary import SCHEMA, decode

if TYPE_CHECKING:
    import hashlib

_PIECE = 1 << 20
_MOST_CACHED_BYTES = 2 << 30


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task: summarise the trace of one rank.

    Attributes:
        path: The path of the trace.
        step: The name (or glob) of the annotation around one step. None: steps are detected.
        user: Globs of the files that count as the user's code. If empty, these are all files except framework files.
        edits: Edits that are made to the rank's program, as `unstall whatif` takes them.
        cache: Whether the summary may be read from the cache, and is written to it.
        alone: Whether no other trace of the job begins like this one and has its size. Then it is no copy, and needs no
            digest without a cache.
    """

    path: str
    step: str | None = None
    user: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    cache: bool = True
    alone: bool = False


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a task, which summarises the trace of one rank.

    Attributes:
        path: The path of the trace.
        digest: A digest of the trace's content. "" if the trace could not be read, or needs none.
        data: The encoded summary. None if the trace cannot be used.
        why: Why the trace cannot be used. "" if it can be used.
        usage: True if the trace cannot be used because the user's arguments do not fit it. False if the trace is at
            fault, or if it can be used.
    """

    path: str
    digest: str = ""
    data: bytes | None = None
    why: str = ""
    usage: bool = False


def map_file(task: Task) -> Mapped:
    """Summarises the trace of one rank. If the trace cannot be used, the returned outcome says why. No content of a
    trace makes this function raise an exception."""
    digest = ""
    try:
        if task.cache or not task.alone:
            digest = _digest(task.path)
        cached = _cached(task, digest) if task.cache else None
        if cached is not None:
            return Mapped(path=task.path, digest=digest, data=cached)
        from unstall.fleets.summarise import summarise

        data = summarise(task.path, step=task.step, user=task.user, edits=task.edits)
        if task.cache:
            _keep(task, digest, data)
        return Mapped(path=task.path, digest=digest, data=data)
    except UsageError as error:
        return Mapped(path=task.path, digest=digest, why=str(error), usage=True)
    except (UnstallError, OSError) as error:
        return Mapped(path=task.path, digest=digest, why=str(error).removeprefix(f"{task.path}: "))
    except MemoryError:
        return Mapped(path=task.path, digest=digest, why="there is not enough memory to read it")
    except Exception as error:  # an error that a hostile file may still cause ends this rank, not the job
        return Mapped(path=task.path, digest=digest, why=f"it cannot be read ({type(error).__name__}: {error})")


def files_of_glob(pattern: str) -> list[str]:
    """Returns the paths of the files on this machine that match a glob. `**` matches folders to any depth."""
    import glob

    return [path for path in glob.glob(pattern, recursive=True) if Path(path).is_file()]  # noqa: PTH207 - absolute globs


def _digest(path: str) -> str:
    import hashlib  # here, since it loads OpenSSL

    found = hashlib.sha256()  # processors have instructions for it
    with Path(path).open("rb") as file:
        _feed(found, file)
    return found.hexdigest()


def _feed(found: hashlib._Hash, file: BinaryIO) -> None:
    while piece := file.read(_PIECE):
        found.update(piece)


def cache_folder() -> Path:
    """Returns the folder of the cached summaries. It is `unstall/ranks` in the user's cache folder, which the
    environment variable XDG_CACHE_HOME names (default: ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "unstall" / "ranks"


def _entry(task: Task, digest: str) -> Path:
    # The summary contains the file's name, and its rank may come from the name.
    import hashlib

    asked = msgspec.json.encode([SCHEMA, __version__, digest, task.path, task.step, task.user, task.edits])
    return cache_folder() / f"{hashlib.blake2b(asked, digest_size=20).hexdigest()}.rank"


def _cached(task: Task, digest: str) -> bytes | None:
    try:
        data = _entry(task, digest).read_bytes()
        decode(data)
    except (OSError, RuntimeError, TraceError):
        return None
    return data


def _keep(task: Task, digest: str, data: bytes) -> None:
    """Writes a summary to the cache. If the cache cannot be written, does nothing: the summary is then made again the
    next time."""
    with suppress(OSError, RuntimeError, UsageError):
        entry = _entry(task, digest)
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(entry, data)
        _prune(entry.parent)


def _prune(folder: Path) -> None:
    """If the summaries in `folder` have more than 2 GiB, removes the oldest of them until they have at most 2 GiB."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another thread or process has renamed or removed it
                files.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= _MOST_CACHED_BYTES:
            break
        with suppress(OSError):
            Path(path).unlink()
        total -= size
