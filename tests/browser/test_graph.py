"""The page of `unstall draw`, in both themes: its graph can be read, and scrolls in its panel."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Open
from diagnose.test_operator_graph import _FORK, _run

from unstall.answers.drawn import Drawn
from unstall.answers.explain import explain
from unstall.document import html

pytestmark = pytest.mark.browser

_COLOUR = "([of, what]) => getComputedStyle(document.querySelector(of))[what]"


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_a_graph_is_drawn_within_the_page(opened: Open, width: int, theme: str) -> None:
    shown = html.render(Drawn.of(explain(_run([10, 50, 20, 5], _FORK)), 1).document())
    page = opened(shown, width=width, theme=theme, ready="svg").page

    assert page.locator(".graph .box").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wanted = ([".graph g text", "fill"], [".graph g:not(.hot) .box", "fill"])
    text, box = (page.evaluate(_COLOUR, each) for each in wanted)
    assert (text, box) == (
        ("rgb(22, 27, 34)", "rgb(243, 245, 248)") if theme == "light" else ("rgb(228, 233, 240)", "rgb(30, 37, 48)")
    )
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
