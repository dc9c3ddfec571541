"""Reads a file and yields its uncompressed text in blocks. A thread unpacks the next blocks in
advance.

The first bytes of the file show whether it is compressed by gzip, by zstd, or not at all.
"""

from __future__ import annotations

import importlib
import shlex
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from glob import glob
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, Protocol

from unstall.did_you_mean import most_similar, suggestion
from unstall.errors import TraceError
from unstall.read.process_settings import short_turns
from unstall.timeline.limits import ALWAYS_UNPACKED_BYTES, MOST_TRACE_EXPANSION

Progress = Callable[[int, int], None]

BLOCK_BYTES = 1 << 20
_PACKED_BYTES = 512 << 10
_BLOCKS_AHEAD = 2
_SMALL_BYTES = 256 << 10  # smaller files are unpacked faster than a thread would save time
_SIMILAR = 0.7  # of difflib's ratio of two names

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ARCHIVES = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"7z\xbc\xaf": "7z"}


class Decompressor(Protocol):
    """Stands for the object that `zlib.decompressobj()` returns, and has the only method of it that
    unstall calls. zlib does not export the type of this object.
    """

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


class DamagedError(Exception):
    """Raised if compressed data is damaged. The text that was yielded before is good."""


def blocks(path: Path, progress: Progress | None = None) -> Generator[bytes, None, None]:
    """Yields the uncompressed text of a file in blocks of at most `BLOCK_BYTES` bytes. A caller
    that stops before the last block must close the generator.

    Args:
        path: The file.
        progress: A function that is called with (bytes of the file read so far, size of the file in
            bytes).

    Raises:
        TraceError: The file cannot be opened, or its text is more than 250 times as long as the
            file.
        DamagedError: The compressed data is damaged. The blocks before the damage were yielded.
    """
    try:
        with path.open("rb", buffering=0) as file:
            if not file.seekable():
                raise TraceError(
                    f"{path}: this is a pipe; save it to a file first, or pipe it into `unstall explain -`"
                )
            size = path.stat().st_size
            source = _unpack(file, path)
            with short_turns(), closing(_ahead(source) if size > _SMALL_BYTES else source) as unpacked:
                for text, position in unpacked:
                    if progress:
                        progress(position, max(size, position))
                    yield text
    except IsADirectoryError:
        raise TraceError(f"{path}: this is a directory; give the trace file in it{_as_job(path)}") from None
    except OSError as error:
        meant = _meant(path) if isinstance(error, FileNotFoundError) else ""
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}{meant}") from error


def _meant(path: Path) -> str:
    """Returns a question that suggests the file in the same folder with the most similar name. Returns "" if no name is
    similar. If the name is a glob that several files match, returns a clause that says how to explain them as one job.
    """
    if len(glob(str(path), recursive=True)) > 1:  # noqa: PTH207 - absolute globs
        return f"; this is a pattern that several files match: give one of them{_as_job(path)}"
    near = ""
    with suppress(OSError):
        near = most_similar(path.name, [each.name for each in path.parent.iterdir()], _SIMILAR)
    return suggestion(near and path.with_name(near))


def _as_job(path: Path) -> str:
    return f", or explain the traces of all ranks of a job as one: unstall fleet {shlex.quote(str(path))}"


def _ahead(source: Iterator[tuple[bytes, int]]) -> Generator[tuple[bytes, int], None, None]:
    """Yields the blocks of `source`. A thread reads them in advance, and stays at most a few blocks
    ahead of the caller.
    """
    permits: SimpleQueue[bool] = SimpleQueue()
    made: SimpleQueue[tuple[bytes, int] | Exception | None] = SimpleQueue()

    def make() -> None:
        try:
            for block in source:
                made.put(block)
                if not permits.get():
                    return
            made.put(None)
        except Exception as error:
            made.put(error)

    for _ in range(_BLOCKS_AHEAD):
        permits.put(True)
    thread = Thread(target=make, name="unstall-unpack", daemon=True)
    thread.start()
    try:
        while block := made.get():
            if isinstance(block, Exception):
                raise block
            permits.put(True)
            yield block
    finally:
        permits.put(False)
        thread.join()


def _unpack(file: BinaryIO, path: Path) -> Generator[tuple[bytes, int], None, None]:
    """Yields `(text, count)`: the next block of the uncompressed text, and how many bytes of the
    file were read so far.

    Raises:
        TraceError: The file is an archive that is neither gzip nor zstd, or the uncompressed text
            is too long for the size of the file.
    """
    start = file.read(_PACKED_BYTES)
    if start.startswith(_GZIP):
        packed = _gunzip(file, start)
    elif start.startswith(_ZSTD):
        packed = _unzstd(file, start, path)
    else:
        for magic, name in _ARCHIVES.items():
            if start.startswith(magic):
                raise TraceError(f"{path}: this is a {name} archive; unpack it first")
        while start:
            yield start, file.tell()
            start = file.read(BLOCK_BYTES)
        return
    unpacked = 0
    for text, position in packed:
        unpacked += len(text)
        if unpacked > max(ALWAYS_UNPACKED_BYTES, MOST_TRACE_EXPANSION * position):
            raise TraceError(
                f"{path}: byte {position:,} of the file is already byte {unpacked:,} of its text; no trace packs "
                f"more than {MOST_TRACE_EXPANSION} times, so this is not read. If you trust the file, unpack it first"
            )
        yield text, position


def _gunzip(file: BinaryIO, packed: bytes) -> Iterator[tuple[bytes, int]]:
    """Yields `(text, count)` from all members of a gzip file: the next block of the uncompressed
    text, and how many bytes of the file were read so far. Ignores padding after the members.
    """
    while packed.startswith(_GZIP):
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            before = member.copy()
            try:
                text = member.decompress(packed, BLOCK_BYTES)
            except zlib.error as error:
                if text := _up_to_damage(before, packed):
                    yield text, file.tell()
                raise DamagedError(f"its gzip data is damaged ({error})") from error
            at_end = not packed
            packed = member.unconsumed_tail or member.unused_data or file.read(_PACKED_BYTES)
            if text:
                yield text, file.tell() - len(packed)
            elif at_end and not member.eof:
                raise DamagedError("its gzip data ends early")
        if len(packed) < len(_GZIP):
            packed += file.read(_PACKED_BYTES)


def _up_to_damage(member: Decompressor, packed: bytes) -> bytes:
    """Returns the uncompressed text of `packed` up to the damage in it.

    zlib discards this text when it raises an error. So `member`, a copy of the decompressor that
    was made before the error, decompresses `packed` byte by byte.
    """
    text = bytearray()
    with suppress(zlib.error):
        for i in range(len(packed)):
            text += member.decompress(packed[i : i + 1], BLOCK_BYTES)
            if len(text) > BLOCK_BYTES:
                break
    return bytes(text)


def _unzstd(file: BinaryIO, packed: bytes, path: Path) -> Iterator[tuple[bytes, int]]:
    reader = _zstd_reader(file, path)
    while True:
        try:
            text: bytes = reader.read(BLOCK_BYTES)
        except OSError:
            raise
        except Exception as error:  # each library has its own exception class
            raise DamagedError(f"its zstd data is damaged ({error})") from error
        if not text:
            return
        yield text, max(file.tell(), len(packed))


def _zstd_reader(file: BinaryIO, path: Path) -> Any:
    """Returns an object that reads the uncompressed bytes of a zstd file. Uses Python's own zstd
    module (3.14 or later), or else the package `zstandard`.

    Raises:
        TraceError: Both modules are missing.
    """
    file.seek(0)
    try:
        return importlib.import_module("compression.zstd").ZstdFile(file)
    except ImportError:
        pass
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        raise TraceError(
            f"{path}: this is zstd data, which takes Python 3.14 or the package zstandard; "
            f"install that, or unpack it first: zstd -d {path.name}"
        ) from None
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
