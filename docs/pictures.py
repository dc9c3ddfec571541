"""Draws the pictures of the HTML report in the README, report.png and report-dark.png, beside this file.

    python docs/pictures.py

It needs Playwright (`pip install -e '.[dev]'`), a Chromium, and pngquant, which makes the files a third as large.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import unstall

DOCS = Path(__file__).parent
TRACE = "examples/traces/gpt2_decode_item.json.gz"
PICTURES = {"light": DOCS / "report.png", "dark": DOCS / "report-dark.png"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, MARGIN = 1200, 24  # CSS pixels
COLOURS = 64


def main() -> None:
    """Open one report in both themes."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None or shutil.which("pngquant") is None:
        raise SystemExit("this needs Chromium and pngquant: on Debian, install the packages chromium and pngquant")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = Path(folder) / "report.html"
        with chdir(DOCS.parent):  # the report names the trace as it was given
            unstall.explain(TRACE).save(report)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for theme, picture in PICTURES.items():
            draw(browser, report, theme, picture)
        browser.close()
    subprocess.run(["pngquant", "--force", "--nofs", "--ext", ".png", str(COLOURS), *PICTURES.values()], check=True)


def draw(browser: Any, report: Path, theme: str, picture: Path) -> None:
    """Keep what stands above the findings: the verdict, where the time went, the plan."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme=theme, reduced_motion="reduce")
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    plan = page.locator("section[aria-labelledby=plan-title]").bounding_box()
    height = plan["y"] + plan["height"] + MARGIN
    page.screenshot(path=picture, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})


if __name__ == "__main__":
    main()
