"""The cache of summaries, in the user's cache folder. It finds a summary by the content of its trace, wherever
the trace is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from unstall._version import __version__
from unstall.errors import TraceError, UsageError
from unstall.files import write_atomically
from unstall.fleets.summary import SCHEMA, at_path, decode

_MOST_BYTES = 2 << 30


def digest(path: str) -> str:
    """Returns a digest of the content of a file."""
    import hashlib  # here, since it loads OpenSSL

    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # processors have instructions for it


def folder() -> Path:
    """Returns the folder of the cache. It is `unstall/ranks` in the user's cache folder, which the
    environment variable XDG_CACHE_HOME names (default: ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "unstall" / "ranks"


def find(asked: tuple[object, ...], path: str) -> bytes | None:
    """Returns the encoded summary that was kept for `asked`, as that of a trace at `path`: `asked` is the digest of the
    trace, and all else that the summary depends on, as JSON can encode it. Returns None if there is none, or if it is
    damaged."""
    try:
        data = _entry(asked).read_bytes()
        return data if decode(data).summary.path == path else at_path(data, path)
    except (OSError, RuntimeError, TraceError):
        return None


def keep(asked: tuple[object, ...], data: bytes) -> None:
    """Keeps an encoded summary for `asked`. If the cache cannot be written, does nothing: the summary is then made
    again the next time."""
    with suppress(OSError, RuntimeError, UsageError):
        entry = _entry(asked)
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(entry, data)


def prune() -> None:
    """If the cache has more than 2 GiB, removes the oldest summaries until it has at most 2 GiB."""
    files = []
    with suppress(OSError, RuntimeError), os.scandir(folder()) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another thread or process has renamed or removed it
                files.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= _MOST_BYTES:
            break
        with suppress(OSError):
            Path(path).unlink()
        total -= size


def _entry(asked: tuple[object, ...]) -> Path:
    import hashlib

    encoded = msgspec.json.encode([SCHEMA, __version__, *asked])
    return folder() / f"{hashlib.blake2b(encoded, digest_size=20).hexdigest()}.rank"
