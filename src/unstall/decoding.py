"""Decodes JSON and MessagePack into types. Several threads may decode at the same time.

msgspec prepares a type when the type is first decoded. If two threads do that to one type at the same time, the process
crashes (seen with msgspec 0.22.0). So decoders are created only here, under a lock; a decoder's own methods are safe.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

T = TypeVar("T")
_turn = threading.Lock()


def _forked() -> None:
    global _turn
    _turn = threading.Lock()  # another thread may have held it


os.register_at_fork(after_in_child=_forked)


def json_decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """Returns a decoder of JSON into `type_`."""
    with _turn:
        return msgspec.json.Decoder(type_)


def from_json(data: bytes | bytearray | memoryview | Raw | str, type_: type[T]) -> T:
    """Decodes JSON into `type_`.

    Raises:
        msgspec.DecodeError: `data` is no JSON.
        msgspec.ValidationError: It is not of this type.
    """
    return json_decoder(type_).decode(data)


def from_msgpack(data: bytes | bytearray | memoryview, type_: type[T]) -> T:
    """Decodes MessagePack into `type_`. Raises what `from_json` raises."""
    with _turn:
        decoder = msgspec.msgpack.Decoder(type_)
    return decoder.decode(data)


def converted(data: Any, type_: type[T], *, from_attributes: bool = False) -> T:
    """Converts plain values, or an object with attributes of the same names, into `type_`.

    Raises:
        msgspec.ValidationError: The values do not fit the type.
    """
    json_decoder(type_)  # prepares the type
    return msgspec.convert(data, type_, from_attributes=from_attributes)
