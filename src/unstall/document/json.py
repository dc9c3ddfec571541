"""Renders the data of a document as JSON that is safe to print on a terminal. Keys are sorted, and
times are integers in ns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from unstall.decoding import converted
from unstall.document.document import Document

Struct = TypeVar("Struct", bound=msgspec.Struct)


def render(document: Document, *, top: int | None = None) -> str:
    """Returns all data of a document as JSON. `top` has no effect: it limits only what formats for people show."""
    return encode(document.data)


def encode(data: msgspec.Struct | Mapping[str, object]) -> str:
    """Returns data as indented JSON."""
    try:
        encoded = msgspec.json.encode(data, order="sorted")
    except UnicodeEncodeError:  # a lone surrogate: file names may hold any bytes
        encoded = msgspec.json.encode(_mapped(msgspec.to_builtins(data), _encodable), order="sorted")
    text = msgspec.json.format(encoded, indent=1).decode() + "\n"
    # DEL is the only invisible ASCII character that JSON itself does not escape.
    return text.replace("\x7f", "\\u007f") if text.isascii() else "".join(map(_visible, text))


def map_texts(data: Struct, change: Callable[[str], str]) -> Struct:
    """Returns a copy of `data` in which each text is replaced by `change(text)`."""
    return converted(_mapped(msgspec.to_builtins(data), change), type(data))


def _mapped(raw: object, change: Callable[[str], str]) -> object:
    match raw:
        case str():
            return change(raw)
        case dict():
            return {key: _mapped(item, change) for key, item in raw.items()}
        case list() | tuple():
            return [_mapped(item, change) for item in raw]
        case _:
            return raw


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _visible(character: str) -> str:
    """Returns a character in a form that is safe on a terminal: an invisible character becomes a JSON escape."""
    if character.isprintable() or character == "\n":
        return character
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
