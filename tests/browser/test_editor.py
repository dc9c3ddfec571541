"""Links that open a source line in the user's editor, on a page where it was written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Open

import unstall
from unstall.answers.report import Report

pytestmark = pytest.mark.browser

TRACE = Path("examples/traces/gpt2_decode_item.json.gz").resolve()
COLOURS = {"light": "rgb(31, 95, 191)", "dark": "rgb(122, 176, 245)"}  # --accent


@pytest.fixture(scope="module")
def explained() -> Report:
    return unstall.explain(TRACE)


@pytest.fixture
def page(explained: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Writes the report of a program, pairs.py, that is in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNSTALL_EDITOR", raising=False)
    (tmp_path / "pairs.py").touch()

    def write() -> Path:
        explained.save("my report.html")
        return tmp_path / "my report.html"

    return write


def test_findings_lines_and_the_selected_event_open_in_the_editor(
    opened: Open, page: Callable[[], Path], tmp_path: Path
) -> None:
    at = opened(page())
    caller, first = at.page.locator(".finding").first.locator("a.editor").all()

    assert first.get_attribute("href") == f"vscode://file{tmp_path.as_posix()}/pairs.py:62"
    assert caller.get_attribute("href") == f"vscode://file{tmp_path.as_posix()}/pairs.py:68"
    assert first.inner_text() == "Open in VS Code ↗"
    assert caller.get_attribute("aria-label") == "Open pairs.py:68 in VS Code"
    assert at.page.locator(".lines tbody tr", has_text="pairs.py").first.locator("a.editor").count() == 1

    at.press("/")
    at.page.keyboard.type("pairs.py:62")
    at.page.locator(".matches", has_text="match").wait_for()
    at.page.keyboard.press("Enter")
    at.settle()
    assert at.page.locator(".details .facts a.editor").get_attribute("href").endswith("/pairs.py:62")
    assert at.page.locator(".details .stack li", has_text="pairs.py").first.locator("a.editor").count() == 1
    assert at.page.locator(".details .stack li", has_text="torch/").locator("a.editor").count() == 0


def test_a_key_reaches_the_link_and_follows_it(opened: Open, page: Callable[[], Path]) -> None:
    at = opened(page())
    at.page.evaluate(  # no editor is started
        "addEventListener('click', event => { window.followed = event.target.href; event.preventDefault(); })"
    )
    at.page.locator(".finding button.primary").first.focus()
    at.page.keyboard.press("Tab")
    at.page.keyboard.press("Enter")

    assert at.page.evaluate("window.followed").endswith("/pairs.py:62")


def test_a_copy_of_the_page_elsewhere_has_no_links(opened: Open, page: Callable[[], Path], tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    copy = shutil.copy(page(), tmp_path / "downloads/my report.html")

    assert opened(copy).page.locator("a.editor").count() == 0


def test_the_editor_is_the_users(
    opened: Open, page: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSTALL_EDITOR", "pycharm")
    link = opened(page()).page.locator(".finding-foot a.editor").first

    assert link.get_attribute("href") == f"pycharm://open?file={tmp_path.as_posix()}/pairs.py&line=62"
    assert link.get_attribute("title") == "Open pairs.py:62 in PyCharm"


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_no_violation(opened: Open, page: Callable[[], Path], width: int, theme: str) -> None:
    at = opened(page(), width=width, theme=theme)
    at.page.evaluate("() => document.querySelectorAll('details').forEach(details => details.open = true)")
    link = at.page.locator("a.editor").first
    found = Axe().run(at.page)

    assert found.violations_count == 0, found.generate_report()
    assert link.evaluate("link => getComputedStyle(link).color") == COLOURS[theme]
    assert at.page.evaluate("() => document.documentElement.scrollWidth") <= width
