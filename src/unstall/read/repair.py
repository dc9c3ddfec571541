"""Repairs the JSON of malformed events of a trace. This is slow, so it is used only for events that
cannot be decoded otherwise.
"""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from unstall.decoding import json_decoder
from unstall.read.schema import Arrow, ArrowEnd, Complete, Event, Instant, Label, Other, event_type

_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_CONTROL_CHARACTERS = bytes(max(byte, 0x20) for byte in range(256))
_TEXT_OR_NO_NUMBER = re.compile(
    rb'"(?P<text>(?:[^"\\]++|\\.)*+)"|[-+]?(?:NaN|nan|Infinity|inf)(?:\([a-z0-9_]*\))?', re.DOTALL
)
_ESCAPE = re.compile(
    rb"(?P<valid>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb'|\\(?P<known>["\\/bfnrt]|u[0-9a-fA-F]{4})?'
)
_WHOLE = re.compile(r"-?[0-9]{1,20}")
_STRICT = json_decoder(event_type(Decimal))
_NUMBERS_AS_TEXT = json_decoder(event_type(Decimal), strict=False)  # so ROCm writes the arguments of its calls
_MEMBERS = json_decoder(dict[str, Raw])
_PHASES: dict[str, type[Any]] = {
    "X": Complete[Decimal],
    "s": Arrow[Decimal],
    "f": ArrowEnd[Decimal],
    "i": Instant[Decimal],
    "M": Label,
}


def repair(event: bytes) -> tuple[Event | None, bool, bool]:
    """Decodes one event of a trace, given its JSON. Repairs the event if it is malformed.

    Returns:
        `(event, new_text, new_values)`. `event` is None if the event cannot be repaired. `new_text`
        says whether the event's text was changed. `new_values` says whether values of the event
        were replaced. A number that is given as text counts as neither.
    """
    for is_repaired in (False, True):
        text = repaired(event) if is_repaired else event
        try:
            return _STRICT.decode(text), is_repaired, False
        except msgspec.ValidationError:
            with suppress(*_BROKEN):
                return _NUMBERS_AS_TEXT.decode(text), is_repaired, False
            with suppress(*_BROKEN):
                return _fitted(text), is_repaired, True
        except _BROKEN:
            pass
    return None, False, False


def repaired(text: bytes) -> bytes:
    """Returns `text`, which is almost JSON, with its defects repaired.

    Control characters become spaces. Invalid UTF-8 becomes U+FFFD. The backslash of an invalid
    escape becomes a literal backslash. NaN and infinity become null.
    """
    text = text.decode("utf-8", "replace").encode().translate(_CONTROL_CHARACTERS)
    return _TEXT_OR_NO_NUMBER.sub(_repaired_token, text)


def _repaired_token(token: re.Match[bytes]) -> bytes:
    if token["text"] is None:
        return b"null"
    return _ESCAPE.sub(_repaired_escape, token[0]) if b"\\" in token[0] else token[0]


def _repaired_escape(escape: re.Match[bytes]) -> bytes:
    if escape["half"]:
        return "\ufffd".encode()
    return escape[0] if escape["valid"] or escape["known"] else rb"\\"


def _fitted(text: bytes) -> Event | None:
    """Decodes an event that has values of wrong types. Each such value is converted if possible,
    and replaced by the field's default if not.

    Returns None if the event has no phase.
    """
    members = _MEMBERS.decode(text)
    if "ph" not in members or not (phase := _as_text(members["ph"])):
        return None
    type_ = _PHASES.get(phase)
    return Other() if type_ is None else _built(type_, members)


def _built(type_: Any, members: dict[str, Raw]) -> Any:
    return type_(
        **{
            name: _fit(members[key], decoder, default)
            for key, name, decoder, default in _fields(type_)
            if key in members
        }
    )


@cache
def _fields(type_: Any) -> list[tuple[str, str, msgspec.json.Decoder[Any], Any]]:
    """Returns (JSON key, attribute, decoder, default) for each field of the type."""
    fields = msgspec.structs.fields(type_)
    return [(field.encode_name, field.name, json_decoder(field.type), field.default) for field in fields]


def _fit(raw: Raw, decoder: msgspec.json.Decoder[Any], default: Any) -> Any:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        if isinstance(default, str):
            return _as_text(raw)
        if isinstance(default, Struct):
            return _built(type(default), _MEMBERS.decode(raw)) if bytes(raw).startswith(b"{") else default
        return _as_whole(raw, default)


def _as_text(raw: Raw) -> str:
    value = msgspec.json.decode(raw)
    if isinstance(value, str):
        return value
    return "" if value is None else bytes(raw).decode()


def _as_whole(raw: Raw, default: int | None) -> int | None:
    """Returns the value as an int if it is a whole number or a string of digits, otherwise `default`."""
    value = msgspec.json.decode(raw)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63 and value == int(value):
        return int(value)
    return default
