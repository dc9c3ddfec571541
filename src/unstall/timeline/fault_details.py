"""What is known of a fault beside its place: the check that failed, and the value that failed it."""

from __future__ import annotations

import msgspec

_LONGEST = 1 << 16  # bytes of JSON


class FaultInput(msgspec.Struct, frozen=True):
    """A tensor that the failed operator was given. Tensors of a list are named indices[0], indices[1], …"""

    name: str
    dtype: str
    shape: tuple[int, ...]


class WrongValue(msgspec.Struct, frozen=True, kw_only=True):
    """The first wrong value of an input. "nan", "inf" and "-inf" stand for values that JSON lacks.

    Values from `least` on and below `bound` are right. Both are None if the value is wrong for another reason.
    """

    argument: str
    value: int | float | str
    position: tuple[int, ...]
    least: int | None = None
    bound: int | None = None
    count: int  # how many values are wrong
    of: int  # how many there are


class FaultDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The details of one fault. Details that are not known are left out of the text that `packed` makes."""

    check: str  # in the words of the kernel
    kernel: str | None = None
    inputs: tuple[FaultInput, ...] = ()
    wrong: WrongValue | None = None


def packed(details: FaultDetails) -> str:
    """Returns the details as JSON, which is how a `Timeline` keeps them."""
    return msgspec.json.encode(details).decode()


def unpacked(text: str) -> FaultDetails | None:
    """Returns the details, or None if the text, which may be of an untrusted file, is something else."""
    if len(text) > _LONGEST:
        return None
    try:
        return msgspec.json.decode(text, type=FaultDetails)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
