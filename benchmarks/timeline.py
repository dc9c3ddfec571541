"""How long the HTML report's timeline takes to open and to draw.

Usage: PYTHONPATH=tests python benchmarks/timeline.py [EVENTS …]

Opens a page of that many events in a headless Chromium and zooms from the whole run into single events and back,
one step a frame. Frame times are of the drawing itself (the animation frame's callback), which is the part that
grows with the events if anything does; the browser's own compositing comes on top, and a headless Chromium does
that without a GPU.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import sync_playwright
from report.rendered import as_html
from report.sample import TYPICAL
from report.timelines import drawn, large

_ZOOMS = 40

# Wraps requestAnimationFrame before the page's own script runs.
_MEASURE = """
window.frames_ms = [];
const plain = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = callback => plain(now => {
    const begun = performance.now();
    callback(now);
    window.frames_ms.push(performance.now() - begun);
});
"""


def measure(browser: Any, events: int) -> str:
    began = time.perf_counter()
    picture = drawn(large(events))
    laid_out = time.perf_counter()
    html = as_html(TYPICAL, picture)
    rendered = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(html, encoding="utf-8")
        page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        page.add_init_script(_MEASURE)
        opening = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        opened = time.perf_counter()
        page.locator(".board canvas").focus()
        page.evaluate("window.frames_ms.length = 0")
        rectangles = []
        for key in "w" * _ZOOMS + "s" * _ZOOMS:
            page.keyboard.press(key)
            page.evaluate("() => new Promise(done => requestAnimationFrame(done))")
            rectangles.append(int(page.locator(".timeline").get_attribute("data-rectangles")))
        frames = sorted(ms for ms in page.evaluate("window.frames_ms") if ms > 0.05)
        page.close()
    worst = frames[int(0.99 * (len(frames) - 1))]
    return (
        f"{events:>10,} {laid_out - began:>8.2f} s {rendered - laid_out:>8.2f} s {len(html) / 1e6:>7.1f} MB "
        f"{opened - opening:>7.2f} s {median(frames):>9.2f} ms {worst:>8.2f} ms {max(rectangles):>10,}"
    )


def main(sizes: list[int]) -> None:
    print("    events   layout     render       page     opens    frame p50  frame p99  rectangles, at most")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for events in sizes:
            print(measure(browser, events), flush=True)
        browser.close()


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [10_000, 100_000, 1_000_000, 2_000_000])
