"""Heat maps and lanes, in each format: all that a shade shows is told by a glyph or a text too."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from unstall.document.document import Document, HeatMap, Lanes, LaneSets, Stretch, words
from unstall.document.formats import render

HOSTILE = "<script>x</script>"


def map_of(rows: int, columns: int) -> HeatMap:
    return HeatMap(
        title=words("Who waits"),
        rows=tuple(f"rank {row}" for row in range(rows)),
        columns=tuple(str(column) for column in range(columns)),
        values=tuple(tuple((row + column) / (rows + columns) for column in range(columns)) for row in range(rows)),
        marks=tuple(tuple(str(row) for _ in range(columns)) for row in range(rows)),
        facts=tuple(tuple(f"{HOSTILE} {row} {column}" for column in range(columns)) for row in range(rows)),
        legend="a shade is time",
    )


TRANSFER = Stretch("transfer", 75, 100, "c")
LANES = LaneSets(
    title=words("The ranks"),
    sets=tuple(
        Lanes(
            title=f"step {number} {HOSTILE}",
            about="its members wait",
            lanes=(
                (
                    "rank 0",
                    (Stretch("work", 0, 25, "a"), Stretch("wait", 25, 75, HOSTILE), Stretch("transfer", 75, 100, "c")),
                ),
                ("rank 1", (Stretch("work", 0, 75, "a"), Stretch("transfer", 75, 100, "c"))),
            ),
        )
        for number in range(3)
    ),
    legend=(("work", "own work"), ("wait", "waiting"), ("transfer", "transfer")),
)


def shown(block: HeatMap | LaneSets, form: str) -> str:
    return render(Document(title="t", about=(), blocks=(block,), data={}), form)


@pytest.mark.parametrize("form", ["text", "markdown", "github", "html"])
@pytest.mark.parametrize(
    "block", [map_of(3, 4), map_of(300, 500), map_of(0, 0), LANES], ids=["small", "large", "none", "lanes"]
)
def test_every_format_shows_it_and_escapes_it(block: HeatMap | LaneSets, form: str) -> None:
    text = shown(block, form)
    assert "<script>x" not in text
    if form == "text":
        assert max(map(len, text.splitlines()), default=0) <= 80


def test_a_shade_grows_with_the_value() -> None:
    (line,) = (line for line in shown(map_of(1, 6), "text").splitlines() if line.startswith("rank 0"))
    assert line.split()[2:] == ["·0", "·0", "░0", "▒0", "▒0", "▓0"]


def test_lanes_have_the_lengths_of_their_stretches() -> None:
    text = shown(LANES, "text").splitlines()
    (lane,) = (line for line in text if line.startswith("rank 0"))
    bar = lane[len("rank 0  ") :]
    assert [round(bar.count(glyph) / len(bar), 1) for glyph in "█░▒"] == [0.2, 0.5, 0.2]


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.details: list[dict[str, str | None]] = []
        self.rects = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "details":
            self.details.append(dict(attrs))
        self.rects += tag == "rect"


def test_the_page_lets_pick_one_set_of_lanes() -> None:
    page = _Elements()
    page.feed(shown(LANES, "html"))
    assert [each["name"] for each in page.details] == ["lanes"] * 3
    assert ["open" in each for each in page.details] == [True, False, False]
    assert page.rects == 3 * 5 + 3
