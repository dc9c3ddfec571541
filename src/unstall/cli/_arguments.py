"""Arguments' values, whose errors name the argument."""

from __future__ import annotations

import argparse
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


def add_plain_step_options(parser: argparse.ArgumentParser) -> None:
    """--plain-step-ms and --as-recorded."""
    parser.add_argument(
        "--plain-step-ms",
        dest="plain_step_ns",
        metavar="MS",
        type=named("--plain-step-ms", parse_ms),
        help="the step time measured without recording, to take the recorder's cost out by (default: the file's, "
        "else what recording usually costs)",
    )
    parser.add_argument("--as-recorded", action="store_true", help="leave the recorder's cost in")


def parse_ms(text: str) -> int:
    """Milliseconds as ns. Raises UsageError for what is none."""
    try:
        ns = round(float(text) * 1e6)
    except (ValueError, OverflowError):
        ns = 0
    if ns <= 0:
        raise UsageError(f"{text!r} is no time: give milliseconds, such as 28.9")
    return ns
