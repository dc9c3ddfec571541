"""Every page, on a screen in light and on a phone in dark: axe finds no violation."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Open
from browser.opened import READY
from fleets.jobs import job, train_ddp
from report.answers import ANSWER, COMPARED, PAIR
from report.rendered import as_html
from report.sample import NO_DEVICE, TYPICAL, WITH_MEMORY
from report.timelines import drawn, training_step

import unstall
from unstall.answers.explain import explain
from unstall.document import html

pytestmark = pytest.mark.browser


def _measured() -> str:
    return html.render(unstall.bench(sum, range(100), max_seconds=0.05).document())


def _compared() -> str:
    return html.render(unstall.compare({"sum": sum, "max": max}, range(100), check=False, max_seconds=0.05).document())


def _numbers() -> str:
    tensor = torch.arange(1.0, 9.0)
    found = unstall.compare_numbers(lambda v: v.exp().sin(), tensor, across=[lambda v: (v * 1.1).exp().sin()])
    return html.render(found.document())


@functools.cache
def _job() -> str:
    with tempfile.TemporaryDirectory() as folder:
        job(functools.partial(train_ddp, slow=3, cause="loader", waits=20), Path(folder), ranks=40)
        return html.render(unstall.fleet(folder, cache=False).document())


@functools.cache
def _recorded() -> str:
    return html.render(explain("examples/traces/gpt2_decode_item.json.gz").document())


PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: as_html(TYPICAL, drawn(training_step())),
    "report with memory": lambda: as_html(WITH_MEMORY),
    "report without a device": lambda: as_html(NO_DEVICE),
    "report of a recorded run": _recorded,
    "whatif": lambda: as_html(ANSWER, *PAIR),
    "diff": lambda: as_html(COMPARED, *PAIR),
    "bench": _measured,
    "compare": _compared,
    "numbers": _numbers,
    "fleet": _job,
}


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_violation(opened: Open, name: str, width: int, theme: str) -> None:
    ready = "body" if name in ("bench", "compare", "numbers", "fleet") else READY
    page = opened(PAGES[name](), width=width, theme=theme, ready=ready).page
    page.evaluate("() => document.querySelectorAll('details').forEach(details => details.open = true)")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
