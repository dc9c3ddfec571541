"""The limits that the markers of a test set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from unstall.errors import UsageError
from unstall.figures import parse_share, parse_size

NO_GPU = "there is no GPU here. Use --unstall-gpu h200"


@dataclass(frozen=True, slots=True)
class MarkerLimit:
    """One limit of a test.

    Attributes:
        name: The name of the marker that sets the limit, such as "limit_syncs".
        text: The marker as written in the test, such as "limit_syncs(2)".
        value: The limit; 0 if the marker takes no argument.
    """

    name: str
    text: str
    value: float = 0


def limits_of(item: pytest.Item) -> dict[str, MarkerLimit]:
    """Returns the limits of a test. The keys are the names of the markers that set them.

    A marker of the test itself takes precedence over one of its class or module. If the argument of
    a marker is invalid, the test fails.
    """
    limits = {}
    for name, parse in _PARSERS.items():
        mark = item.get_closest_marker(name)
        if mark is not None:
            text, wrong = _text(mark), ""
            try:
                limits[name] = MarkerLimit(name, text, _value(mark, parse))
            except UsageError as error:
                wrong = str(error)
            if wrong:
                pytest.fail(f"{item.nodeid}: @pytest.mark.{text}: {wrong}", pytrace=False)
    return limits


def _value(mark: pytest.Mark, parse: Callable[[Any], float] | None) -> float:
    if parse is None:
        if mark.args or mark.kwargs:
            raise UsageError("it takes no argument")
        return 0
    if len(mark.args) != 1 or mark.kwargs:
        raise UsageError("it takes one argument")
    return parse(mark.args[0])


def _text(mark: pytest.Mark) -> str:
    """Returns a marker as written in the test, without "@pytest.mark." before it."""
    arguments = [*map(_shown, mark.args), *(f"{name}={_shown(value)}" for name, value in mark.kwargs.items())]
    return mark.name + (f"({', '.join(arguments)})" if arguments else "")


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError("give a whole number, 0 or more")
    return value


def _bytes(value: object) -> int:
    if not isinstance(value, str):
        raise UsageError('give a size as a text: "2 GB", "512 MiB"')
    return parse_size(value)


def _share(value: object) -> float:
    if not isinstance(value, str):
        raise UsageError('give a percentage as a text: "10%"')
    return parse_share(value)


_PARSERS: dict[str, Callable[[Any], float] | None] = {
    "no_sync": None,
    "limit_syncs": _count,
    "limit_launches": _count,
    "limit_device_memory": _bytes,
    "limit_idle": _share,
    "no_race": None,
}
