"""How long does a frame of the report's timeline take, by its number of events?

    PYTHONPATH=tests python -m benchmarks.page_frames [EVENTS] [--out FILE]     (needs Chromium)

The page is zoomed in, moved and zoomed out by its keys, one key for each frame. A frame's time is that from one
`requestAnimationFrame` to the next, so it is never less than the 16.7 ms of a display with 60 Hz.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from browser.opened import READY
from playwright.sync_api import sync_playwright
from report.rendered import as_html
from report.sample import TYPICAL
from report.timelines import drawn, large

_KEYS = [*"w" * 24, *"d" * 24, *"a" * 24, *"s" * 24]
_FRAMES_MS = """async keys => {
  const canvas = document.querySelector(".board canvas");
  canvas.focus();
  const next = () => new Promise(requestAnimationFrame);
  const took = [];
  let before = await next();
  for (const key of keys) {
    canvas.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
    const now = await next();
    took.push(now - before);
    before = now;
  }
  return took;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", type=int, nargs="?", default=1_600_000)
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "report.html")
        file.write_text(as_html(TYPICAL, drawn(large(args.events))))
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium")
            or shutil.which("chromium-browser")
            or shutil.which("google-chrome")
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        page.goto(file.as_uri())
        page.wait_for_selector(READY, state="attached")
        took = [ms for _ in range(3) for ms in page.evaluate(_FRAMES_MS, _KEYS)]
        version = browser.version
    quantiles = statistics.quantiles(took, n=100)
    figures = {"frames": len(took), "median_ms": round(quantiles[49], 1), "p95_ms": round(quantiles[94], 1)}
    about = {"events": args.events, "chromium": version, "date": time.strftime("%Y-%m-%d")}
    text = json.dumps({**about, **figures, "longest_ms": round(max(took), 1)}, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
