"""The area plot of a terminal."""

from __future__ import annotations

from unstall.document.area_lines import as_lines
from unstall.document.document import Area, words


def _drawn(area: Area, width: int) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in as_lines(area, width)]


_AREA = Area(
    title=words("memory"),
    front=(0, 0, 6, 6, 3, 3, 3, 3),
    behind=(0, 0, 6, 6, 6, 6, 6, 6),
    names=("allocated", "reserved"),
    most="6 B",
    ends=("0", "8 ms"),
    mark=(0.25, words("peak")),
)


def test_an_amount_is_as_high_as_its_share_of_the_largest() -> None:
    assert _drawn(_AREA, 80) == [
        "6 B ┤  ██░░░░",
        "    │  ██░░░░",
        "    │  ██░░░░",
        "    │  ██████",
        "    │  ██████",
        "  0 ┤  ██████",
        "    └────────",
        "       ▲ peak",
        "     0   8 ms",
        "█ allocated   ░ reserved",
    ]


def test_a_column_shows_the_highest_of_its_values_so_that_no_peak_is_lost() -> None:
    values = tuple(60 if at == 777 else 10 for at in range(1000))
    area = Area(
        title=_AREA.title, front=values, behind=(), names=("a", "b"), most="60", ends=("0", "1"), mark=(0.777, words())
    )
    top = _drawn(area, 44)[0]

    assert top == "60 ┤" + " " * 31 + "█"


def test_without_space_nothing_is_drawn() -> None:
    assert _drawn(_AREA, 9) == []
