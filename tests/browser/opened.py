"""A report that is open in a browser: what a test reads from it and does to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

READY = "html[data-ready]"  # the page's script has drawn everything
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
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note_console)
        page.on("dialog", self._note_dialog)
        page.on("request", lambda request: self.fetched.append(request.url))
        page.on("requestfailed", self._forget_refused)

    @classmethod
    def at(cls, browser: Any, file: Path, width: int, height: int, theme: str, ready: str) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
        )
        opened = cls(context.new_page())
        opened.page.goto(file.as_uri())
        opened.page.wait_for_selector(ready, state="attached")
        opened.fetched.remove(file.as_uri())
        opened.settle()
        return opened

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
        self.page.context.close()

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
