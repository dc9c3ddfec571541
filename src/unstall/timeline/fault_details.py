"""Details of a fault in addition to its place: the check that failed, and the value that was wrong."""

from __future__ import annotations

import msgspec

from unstall.decoding import from_json

_LONGEST = 1 << 16  # bytes of JSON


class FaultInput(msgspec.Struct, frozen=True):
    """A tensor that was an input of the failed operator.

    The tensors of an input list are named indices[0], indices[1], and so on.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


class WrongValue(msgspec.Struct, frozen=True, kw_only=True):
    """The first wrong value of an input.

    Attributes:
        argument: The name of the input.
        value: The value, or "nan", "inf" or "-inf", which JSON cannot express as numbers.
        position: The index of the value in the input.
        least: The smallest valid value, or None if the value is neither too small nor too large.
        bound: The smallest value that is too large, or None if `least` is None.
        count: How many values of the input are wrong.
        of: How many values the input has.
    """

    argument: str
    value: int | float | str
    position: tuple[int, ...]
    least: int | None = None
    bound: int | None = None
    count: int  # how many values are wrong
    of: int  # how many there are


class FaultDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The details of one fault. The JSON text contains only the details that are known."""

    check: str  # in the words of the kernel
    kernel: str | None = None
    inputs: tuple[FaultInput, ...] = ()
    wrong: WrongValue | None = None


def packed(details: FaultDetails) -> str:
    """Returns the details as JSON text, the form in which a `Timeline` stores them."""
    return msgspec.json.encode(details).decode()


def unpacked(text: str) -> FaultDetails | None:
    """Parses a JSON text that `packed` returned. Returns None if the text has another form.

    The text may come from an untrusted file.
    """
    if len(text) > _LONGEST:
        return None
    try:
        return from_json(text, FaultDetails)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
