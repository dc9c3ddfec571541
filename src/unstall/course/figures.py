"""The figures of an experiment: what its script prints, and what its author saw, in one syntax.

with synchronize: 531.2 us
reserved: 33,554,432 bytes
warnings: 1
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from unstall.errors import UnstallError

_SCALES: Final = {
    "ns": ("s", 1e-9),
    "us": ("s", 1e-6),
    "µs": ("s", 1e-6),
    "ms": ("s", 1e-3),
    "s": ("s", 1.0),
    "bytes": ("bytes", 1.0),
    "KiB": ("bytes", 2.0**10),
    "MiB": ("bytes", 2.0**20),
    "GiB": ("bytes", 2.0**30),
    "%": ("%", 1.0),
    "x": ("x", 1.0),
    "": ("", 1.0),
}
"""Maps each unit of a text to `(unit, factor)`: the unit in which the value is stored, and the
factor from the text's unit to it.
"""
_LABEL = re.compile(r"{([^{}]+)}")
_LINE = re.compile(r"\s*(?P<label>.*\S): +(?P<text>(?P<number>-?[\d,]*\.?\d+(?:e[+-]?\d+)?) ?(?P<unit>[a-zµA-Z%]*))\s*")


class Figure(msgspec.Struct, frozen=True):
    """One figure of an experiment of the course.

    Attributes:
        label: What the figure is of, such as "with synchronize".
        text: The figure as it was printed, such as "531.2 us".
        value: The figure as a number, in `unit`.
        unit: "s", "bytes", "%", "x" (times as much), or "" for a count.
    """

    label: str
    text: str
    value: float
    unit: str


def figure_in(line: str) -> Figure | None:
    """Returns the figure in a line such as "with synchronize: 531.2 us". Returns None if the line has no figure."""
    found = _LINE.fullmatch(line)
    if found is None or found["unit"] not in _SCALES:
        return None
    unit, factor = _SCALES[found["unit"]]
    return Figure(found["label"], found["text"], float(found["number"].replace(",", "")) * factor, unit)


def figures_in(output: str) -> Iterator[Figure]:
    """Yields the figures in the output of a script, in order. Lines without a figure are ignored."""
    for line in output.splitlines():
        if (found := figure_in(line)) is not None:
            yield found


def figure(label: str, text: str) -> Figure:
    """Returns a figure whose value is given as text, such as "534 us".

    Args:
        label: What the figure is of.
        text: The value with its unit.

    Raises:
        UnstallError: `text` is not a value with a unit.
    """
    found = figure_in(f"{label}: {text}")
    if found is None:
        raise UnstallError(f"{label}: {text!r} is no figure")
    return found


def filled(text: str, figures: Mapping[str, Figure]) -> str:
    """Returns a text with figures in place of their labels: "a launch takes 31.1 us" for "a launch takes {launch}".

    Args:
        text: The text. Labels stand in braces.
        figures: Maps labels to figures. The label of a figure that is missing is left, as code: "`launching`".
    """
    return _LABEL.sub(lambda found: figures[found[1]].text if found[1] in figures else f"`{found[1]}`", text)


def in_unit_of(text: str, value: float) -> str:
    """Returns a value as text, in the unit in which a figure was printed: "360 MiB" for the text "1164.0 MiB".

    Args:
        text: The text of a figure of the same kind.
        value: The value, in the unit of `Figure.unit`.
    """
    unit = text.lstrip("-0123456789,.e+ ")
    return f"{value / _SCALES[unit][1]:,.15g} {unit}".strip()
