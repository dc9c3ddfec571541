"""Reads the trace of one rank and makes a summary of it, on the machine that has the trace."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from unstall.errors import UnstallError, UsageError
from unstall.fleets import cache
from unstall.fleets.identity import told_by_name


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
        before = _version(task.path)
        if task.cache or not task.alone:
            digest = cache.digest(task.path)
        asked = (digest, *told_by_name(Path(task.path)), task.step, task.user, task.edits)
        kept = cache.find(asked, task.path) if task.cache else None
        if kept is not None:
            return Mapped(path=task.path, digest=digest, data=kept)
        from unstall.fleets.summarise import summarise

        data = summarise(task.path, step=task.step, user=task.user, edits=task.edits)
        if task.cache and _version(task.path) == before:  # else the digest may be of another file
            cache.keep(asked, data)
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


def _version(path: str) -> tuple[int, ...]:
    """Returns numbers that change if the file is replaced or written to."""
    seen = os.stat(path)  # noqa: PTH116 - as text
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns
