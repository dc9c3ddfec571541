"""Maps one file to a rank's summary, on the machine that has the file. Summaries are cached by the file's content."""

from __future__ import annotations

import glob
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from unstall._version import __version__
from unstall.errors import TraceError, UnstallError, UsageError
from unstall.files import write_atomically
from unstall.fleets.summary import SCHEMA, decode

_PIECE = 1 << 20
_MOST_CACHED_BYTES = 2 << 30


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with one file; the fields are arguments of `summarise`."""

    path: str
    step: str | None = None
    user: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    cache: bool = True


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a task.

    Attributes:
        path: The file.
        digest: A digest of its content; "" if it could not be read.
        data: The encoded summary; None if the file cannot be used.
        why: Why the file cannot be used; "" if it can.
        usage: Whether the user's question is the reason, not the file.
    """

    path: str
    digest: str = ""
    data: bytes | None = None
    why: str = ""
    usage: bool = False


def map_file(task: Task) -> Mapped:
    """Summarises one file. Never raises for what is in the file: the result says what is wrong with it."""
    digest = ""
    try:
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
        return Mapped(path=task.path, digest=digest, why=_plain(str(error), task.path))
    except MemoryError:
        return Mapped(path=task.path, digest=digest, why="there is not enough memory to read it")
    except Exception as error:  # an error that a hostile file may still cause ends this rank, not the job
        return Mapped(path=task.path, digest=digest, why=f"it cannot be read ({type(error).__name__}: {error})")


def files_of_glob(pattern: str) -> list[str]:
    """Returns the files on this machine whose paths match a glob; ** matches any folders."""
    return [path for path in glob.glob(pattern, recursive=True) if Path(path).is_file()]  # noqa: PTH207 - absolute globs


def _plain(text: str, path: str) -> str:
    return text.removeprefix(f"{path}: ")


def _digest(path: str) -> str:
    found = hashlib.sha256()  # processors have instructions for it
    with Path(path).open("rb") as file:
        _feed(found, file)
    return found.hexdigest()


def _feed(found: hashlib._Hash, file: BinaryIO) -> None:
    while piece := file.read(_PIECE):
        found.update(piece)


def cache_folder() -> Path:
    """Returns the folder of cached summaries: in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "unstall" / "ranks"


def _entry(task: Task, digest: str) -> Path:
    # The summary contains the file's name, and its rank may come from the name.
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
    """Caches a summary. A cache that cannot be written is no error: the next question takes longer."""
    with suppress(OSError, RuntimeError, UsageError):
        entry = _entry(task, digest)
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(entry, data)
        _prune(entry.parent)


def _prune(folder: Path) -> None:
    """Removes the oldest summaries if the cache is larger than 2 GiB."""
    files = [(entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(folder)]
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= _MOST_CACHED_BYTES:
            break
        with suppress(OSError):
            Path(path).unlink()
        total -= size
