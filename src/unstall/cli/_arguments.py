"""Arguments' values, whose errors name the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from unstall.errors import UsageError

Value = TypeVar("Value")


def named(option: str, parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """`parse`, for argparse: its UsageError begins with the option."""

    def parse_value(text: str) -> Value:
        try:
            return parse(text)
        except UsageError as error:
            raise UsageError(f"{option}: {error}") from error

    return parse_value


def parse_count(text: str) -> int:
    """A whole number from 1 on. Raises UsageError for any other."""
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{text!r} is not a whole number from 1 on")
    return int(text)
