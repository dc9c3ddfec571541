"""Parses the texts in which people write amounts of work, such as "64MiB" and "2 GFLOP", and
fractions, such as "1.5%".
"""

from __future__ import annotations

import math
import re
from numbers import Real

from unstall.errors import UsageError

_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_NUMBER = r"\s*(\d+(?:\.\d*)?(?:[eE]\+?\d{1,2})?|\.\d+(?:[eE]\+?\d{1,2})?)\s*"


def bytes_of(value: float | str) -> int:
    """Returns a number of bytes. `value` is the number itself, or a text that `parse_bytes`
    accepts.

    Raises:
        UsageError: `value` is something else.
    """
    return parse_bytes(value) if isinstance(value, str) else _count(value, "bytes", "16384 or 64MiB")


def flops_of(value: float | str) -> int:
    """Returns a number of floating-point operations. `value` is the number itself, or a text that
    `parse_flops` accepts.

    Raises:
        UsageError: `value` is something else.
    """
    return parse_flops(value) if isinstance(value, str) else _count(value, "flops", "2e9 or 2GFLOP")


def share_of(value: float | str, name: str) -> float:
    """Returns a fraction between 0 and 1. `value` is the fraction itself, or a text such as "5%".
    `name` is the name of the option, for the error's message.

    Raises:
        UsageError: `value` is something else.
    """
    if isinstance(value, str):
        try:
            return parse_share(value)
        except UsageError as error:
            raise UsageError(f"{name}={error}") from None
    if not is_number(value) or not 0 < value < 1:
        raise UsageError(f"{name}={value!r} is not between 0 and 1: 0.01 is one percent")
    return float(value)


def seconds_of(value: float, name: str) -> float:
    """Returns `value` as a float. `name` is the name of the option, for the error's message.

    Raises:
        UsageError: `value` is not a positive number.
    """
    if not is_number(value):
        raise UsageError(f"{name}={value!r} is no number of seconds: write it as 2.5")
    if not value > 0:
        raise UsageError(f"{name}={value!r} leaves no time")
    return float(value)


def is_number(value: object) -> bool:
    """Returns whether `value` is a real number, such as an int, a float or a NumPy scalar, but not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _count(value: float, name: str, such: str) -> int:
    if not is_number(value) or not 1 <= value < math.inf:
        raise UsageError(f"{name}={value!r} is no number of them: write it as {such}")
    return round(float(value))


def parse_bytes(text: str) -> int:
    """Returns the number of bytes that a text such as "64MiB", "1.5 GB", "2e9" or "4096" means.

    Raises:
        UsageError: The text is no number of bytes.
    """
    match = re.fullmatch(rf"{_NUMBER}(?:([kKMGTP]i?)?B)?\s*", text)
    count = 0
    if match:
        prefix = match[2] or ""
        scale = _BINARY.get(prefix[:1].upper() + prefix[1:]) or _PREFIXES["k" if prefix == "K" else prefix or ""]
        count = round(float(match[1]) * scale)
    if count < 1:
        raise UsageError(f"{text!r} is no number of bytes: write it with its unit, such as 64MiB, 1.5GB or 4096B")
    return count


def parse_flops(text: str) -> int:
    """Returns the number of floating-point operations that a text such as "2e9", "2G" or "2 GFLOP"
    means.

    Raises:
        UsageError: The text is no such number.
    """
    match = re.fullmatch(rf"{_NUMBER}([kMGTP]?)(?:FLOPs?|FLOPS)?\s*", text)
    count = round(float(match[1]) * _PREFIXES[match[2]]) if match else 0
    if count < 1:
        raise UsageError(f"{text!r} is no number of operations: write it as 2e9, 2G or 2GFLOP")
    return count


def parse_share(text: str) -> float:
    """Returns the fraction that a text such as "5%" or "0.05" means.

    Raises:
        UsageError: The text is no fraction between 0 and 1.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 < share < 1:
        raise UsageError(f"{text!r}: write a percentage or a fraction, such as 5% or 0.05")
    return share
