"""What is known about a fault of a device besides its place: the check that failed, and the value that was wrong."""

from __future__ import annotations

import msgspec

from unstall.decoding import from_json

_LONGEST = 1 << 16  # bytes of JSON


class FaultInput(msgspec.Struct, frozen=True):
    """A tensor that was an input of the failed operator. If the input was a list called `indices`,
    its tensors are named "indices[0]", "indices[1]" and so on.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


class WrongValue(msgspec.Struct, frozen=True, kw_only=True):
    """The first wrong value in an input of the failed operator.

    Attributes:
        argument: The name of the input.
        value: The value; "nan", "inf" or "-inf" for numbers that JSON lacks.
        position: The index of the value in the input.
        least: The smallest valid value; None if the value is neither too small nor too large.
        bound: The smallest value that is too large; None if `least` is None.
        count: How many values of the input are wrong.
        of: How many values the input has.
    """

    argument: str
    value: int | float | str
    position: tuple[int, ...]
    least: int | None = None
    bound: int | None = None
    count: int
    of: int


class FaultDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known about one fault of a device besides its place.

    Attributes:
        check: The text of the check that failed, as it stands in the kernel's source.
        kernel: The operator whose kernel failed; None if it is unknown.
        inputs: The tensors that the operator was given.
        wrong: The first wrong value; None if it is unknown.
    """

    check: str
    kernel: str | None = None
    inputs: tuple[FaultInput, ...] = ()
    wrong: WrongValue | None = None


def packed(details: FaultDetails) -> str:
    """Returns the details as JSON text, which leaves out unknown ones. A `Timeline` stores them in this form."""
    return msgspec.json.encode(details).decode()


def unpacked(text: str) -> FaultDetails | None:
    """Returns the details from a JSON text that `packed` returned. Returns None if the text has
    another form: it may come from an untrusted file.
    """
    if len(text) > _LONGEST:
        return None
    try:
        return from_json(text, FaultDetails)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
