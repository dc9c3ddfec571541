"""A report that is open in a browser: what a test reads from it and does to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

READY = "html[data-ready]"  # the page's script has drawn everything
WINDOWS = [  # width and theme: a few of all pairs show each width and each theme
    (390, "dark"),
    (900, "light"),
    (1400, "dark"),
    *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ((390, "light"), (900, "dark"), (1400, "light"))),
]
_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Opened:
    """`page` is Playwright's. Motion is off, so that whatever a click moves has moved a frame later.

    Where there are two timelines, `run` says which one is meant.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.run = 0
        self.errors: list[str] = []
        self.fetched: list[str] = []
        self._heard = {
            "pageerror": self._note_error,
            "console": self._note_console,
            "dialog": self._note_dialog,
            "request": self._note_request,
            "requestfailed": self._forget_refused,
        }
        for event, note in self._heard.items():
            page.on(event, note)

    @classmethod
    def at(cls, tab: Any, file: Path, width: int, height: int, theme: str, ready: str) -> Opened:
        """Loads the file as if into a new tab, with the pointer outside of it."""
        tab.set_viewport_size({"width": width, "height": height})
        tab.emulate_media(color_scheme=theme, reduced_motion="reduce")
        tab.context.clear_permissions()
        tab.mouse.move(-1, -1)
        opened = cls(tab)
        tab.goto(file.as_uri())
        tab.wait_for_selector(ready, state="attached")
        opened.fetched.remove(file.as_uri())
        opened.settle()
        return opened

    def _note_error(self, error: Any) -> None:
        self.errors.append(str(error))

    def _note_request(self, request: Any) -> None:
        self.fetched.append(request.url)

    def _note_console(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _note_dialog(self, dialog: Any) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _forget_refused(self, request: Any) -> None:
        """A request that the page's policy refuses never leaves the browser."""
        if request.failure == "csp":
            self.fetched.remove(request.url)

    def close(self) -> None:
        """Notes no more of what the tab does."""
        for event, note in self._heard.items():
            self.page.remove_listener(event, note)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate(_FRAMES)

    def data(self, name: str) -> str:
        """What the timeline says of itself: `from`, `to` and `zero` (ns), `selected`, `rectangles`, `lanes`."""
        self.settle()
        value = self.timeline.get_attribute(f"data-{name}")
        return value or ""

    @property
    def timeline(self) -> Any:
        """The one that is meant."""
        return self.page.locator(".timeline").nth(self.run)

    @property
    def view(self) -> tuple[float, float]:
        """The stretch of time in sight, ns."""
        return float(self.data("from")), float(self.data("to"))

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())

    def canvas(self) -> dict[str, float]:
        """The canvas's box, in sight."""
        canvas = self.timeline.locator(".board canvas")
        canvas.scroll_into_view_if_needed()
        box: dict[str, float] = canvas.bounding_box()
        return box

    def point(self, track: str, time: float, lane: int = 0) -> tuple[float, float]:
        """Where on the screen an event of this track is, in one of its first lanes."""
        box = self.canvas()
        start, end = self.view
        label = self.timeline.locator(".label", has_text=track).first.bounding_box()
        return box["x"] + (time - start) / (end - start) * box["width"], label["y"] + 8 + 17 * lane

    def click(self, track: str, time: float, lane: int = 0) -> None:
        self.page.mouse.click(*self.point(track, time, lane))
        self.settle()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.settle()

    def colour(self, track: str, time: float, lane: int = 0) -> tuple[int, int, int]:
        """The colour of the canvas where an event is."""
        x, y = self.point(track, time, lane)
        box = self.canvas()
        pixel = self.page.evaluate(
            """([x, y, run]) =>
                [...document.querySelectorAll('.board canvas')[run].getContext('2d').getImageData(x, y, 1, 1).data]""",
            [round(x - box["x"]), round(y - box["y"]), self.run],
        )
        return pixel[0], pixel[1], pixel[2]

    def variable(self, name: str) -> tuple[int, int, int]:
        """A colour of the theme."""
        value = self.page.evaluate(
            "name => getComputedStyle(document.documentElement).getPropertyValue(name)", f"--{name}"
        ).strip()
        digits = value[1:] if len(value) == 7 else "".join(digit * 2 for digit in value[1:])
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)
