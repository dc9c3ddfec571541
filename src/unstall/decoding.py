"""Decodes JSON and MessagePack into types. Several threads may decode at the same time.

msgspec prepares a type when the type is first decoded. If two threads do that to one type at the
same time, the process crashes (seen with msgspec 0.22.0). So decoders are created only here, under
a lock. Several threads may use one decoder at the same time.
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


def json_decoder(type_: type[T], *, strict: bool = True) -> msgspec.json.Decoder[T]:
    """Returns a decoder that converts JSON to objects of the type `type_`. If it is not strict, numbers may be given
    as text.
    """
    with _turn:
        return msgspec.json.Decoder(type_, strict=strict)


def from_json(data: bytes | bytearray | memoryview | Raw | str, type_: type[T]) -> T:
    """Decodes JSON into an object of the type `type_`.

    Raises:
        msgspec.DecodeError: `data` is no JSON.
        msgspec.ValidationError: `data` is JSON, but not of the type `type_`.
    """
    return json_decoder(type_).decode(data)


def from_msgpack(data: bytes | bytearray | memoryview, type_: type[T]) -> T:
    """Decodes MessagePack into an object of the type `type_`.

    Raises:
        msgspec.DecodeError: `data` is no MessagePack.
        msgspec.ValidationError: `data` is MessagePack, but not of the type `type_`.
    """
    with _turn:
        decoder = msgspec.msgpack.Decoder(type_)
    return decoder.decode(data)


def converted(data: Any, type_: type[T], *, from_attributes: bool = False) -> T:
    """Converts `data` to an object of the type `type_`.

    Args:
        data: Plain values, such as dicts and lists.
        type_: The type of the result.
        from_attributes: Whether `data` may also be an object whose attributes have the names of the
            fields.

    Raises:
        msgspec.ValidationError: The values do not fit the type.
    """
    json_decoder(type_)  # prepares the type
    return msgspec.convert(data, type_, from_attributes=from_attributes)
