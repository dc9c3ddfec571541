"""The result as JSON, and back: schema `unstall.explain/1`, keys sorted, integer nanoseconds."""

from __future__ import annotations

from pathlib import Path

import msgspec

from unstall.errors import TraceError
from unstall.report.wording import map_texts
from unstall.result import SCHEMA, Result

MAX_BYTES = 256 << 20


class _Schema(msgspec.Struct):
    schema: str


def render(result: Result, *, top: int | None = None) -> str:
    """All of the result: `top` limits what people read, never data."""
    return encode(result)


def encode(result: msgspec.Struct) -> str:
    """Any result, keys sorted, harmless on a terminal."""
    try:
        data = msgspec.json.encode(result, order="sorted")
    except UnicodeEncodeError:  # a lone surrogate: file names may hold any bytes
        data = msgspec.json.encode(map_texts(result, _encodable), order="sorted")
    text = msgspec.json.format(data, indent=1).decode() + "\n"
    # Of ASCII only DEL is neither visible nor escaped by JSON itself.
    return text.replace("\x7f", "\\u007f") if text.isascii() else "".join(map(_visible, text))


def read(path: str | Path) -> Result:
    """A result that `render` wrote. Raises TraceError for anything else."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise TraceError(f"{path}: larger than {MAX_BYTES >> 20} MiB, so no result of `unstall explain --json`")
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema == SCHEMA:
            return msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(
            f"{path}: not a result that `unstall explain TRACE -o result.json` wrote: {error}. "
            "A trace is explained with `unstall explain`"
        ) from error
    raise TraceError(f"{path}: its schema is {schema!r}, and this version of unstall reads {SCHEMA!r}")


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _visible(character: str) -> str:
    """Invisible characters escaped, so that JSON on a terminal is harmless and still the same data."""
    if character.isprintable() or character == "\n":
        return character
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
