"""Checks arguments of public functions that take one or several texts."""

from __future__ import annotations

from collections.abc import Iterable

from unstall.errors import UsageError


def texts(given: str | Iterable[str], name: str, of: str) -> tuple[str, ...]:
    """Returns one or several texts as a tuple.

    Args:
        given: A text, or an iterable of texts.
        name: The name of the argument, for the error message.
        of: What the argument has, for the error message, such as "globs".

    Raises:
        UsageError: `given` is neither a text nor an iterable of texts.
    """
    several = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    for text in several:
        if not isinstance(text, str):
            raise UsageError(f"{name}={given!r}: {of} are text, one or a list of them")
    return several
