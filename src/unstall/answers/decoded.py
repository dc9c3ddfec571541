"""Reads the JSON files that unstall's commands save. The field `schema` of a file says what the file contains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from unstall.decoding import from_json
from unstall.errors import TraceError
from unstall.timeline.limits import MOST_RESULT_BYTES


class _Schema(msgspec.Struct):
    schema: str


_DIGITS = re.compile(rb"\d{21}")
_STRING_OR_HUGE = re.compile(rb'"(?:[^"\\]|\\.)*"|(?<![\d.])(\d{21,})(?![\d.eE])', re.DOTALL)


def decoded(path: str | Path, types: Mapping[str, type[msgspec.Struct]]) -> Any:
    """Reads a JSON file that one of unstall's commands saved.

    Args:
        path: The file.
        types: Maps each schema, such as "unstall.diff/1", to the type into which to decode a file
            of this schema.

    Returns:
        An object of the type to which `types` maps the file's field `schema`.

    Raises:
        TraceError: The file cannot be read, is too large, is invalid, or has a schema that is not
            in `types`.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_RESULT_BYTES + 1)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > MOST_RESULT_BYTES:
        raise TraceError(
            f"{path}: it is larger than {MOST_RESULT_BYTES >> 20} MiB, so it is no result of `unstall explain --json`"
        )
    if _has_huge_numbers(data):
        raise TraceError(
            f"{path}: it has a number of 21 digits or more, so it is no result of `unstall explain --json`"
        )
    try:
        schema = from_json(data, _Schema).schema
        if schema in types:
            return from_json(data, types[schema])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(
            f"{path}: not a result that `unstall explain TRACE -o result.json` wrote: {error}. "
            "A trace is explained with `unstall explain`"
        ) from error
    raise TraceError(
        f"{path}: its schema is {schema!r}, and this version of unstall reads {' and '.join(map(repr, types))} here"
    )


def _has_huge_numbers(data: bytes) -> bool:
    """Returns whether JSON has an integer that may not fit into 64 bits. Such an integer is no time and no size, and
    its quotient may not fit into a float.
    """
    if not _DIGITS.search(data):
        return False
    return any(match[1] is not None for match in _STRING_OR_HUGE.finditer(data))
