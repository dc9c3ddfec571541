"""A trace and a result whose every text is an attack, opened in a browser."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from browser.conftest import Open
from report.answers import ANSWER, COMPARED, PLANNED
from report.rendered import as_html
from report.sample import HOSTILE, TYPICAL, WITH_MEMORY
from report.timelines import Recording, drawn

from unstall.changes.result import DiffResult
from unstall.result import Result, WhatIf
from unstall.timeline.columns import HostKind

pytestmark = pytest.mark.browser

ATTACK = "".join(
    (
        "</script></title></style><script>alert(1)</script>",
        "<img src=x onerror=alert(2)><svg onload=alert(3)><iframe src=//evil.test></iframe>",
        "<!--]]>\"'`{{result}}{{picture}}\u202egnp.exe\u2066\u200b\x00\x1b[31m",
        "javascript:alert(4)",
    )
)
HANDLERS = "[...document.all].flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on'))"
SHOWN = ATTACK.translate(dict.fromkeys(map(ord, "\u202e\u2066\u200b\x00\x1b"), "\ufffd"))


FIXED = {
    *("annotation", "recorded", "high", "medium", "exact", "def", "launch", "sync", "input"),
    *("usual cost", "plain step time", "unstall.whatif/1", "unstall.diff/1"),
    *("new", "gone", "changed", "within noise", "busy", "idle", "compute", "line", "b", "software"),
    *("pinned", "non-blocking"),
}


def attacked(value: Any) -> Any:
    """The same data with an attack in place of every text but those that the schemas fix."""
    if isinstance(value, str):
        return value if value in FIXED else ATTACK
    if isinstance(value, dict):
        return {key: attacked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [attacked(item) for item in value]
    return value


RESULT = msgspec.convert(attacked(msgspec.to_builtins(WITH_MEMORY)), Result)


def recording() -> Recording:
    made = Recording()
    frame = made.frame(ATTACK, 1, ATTACK)
    call = made.call(ATTACK, 0, 500_000, stack=frame)
    for i, text in enumerate(HOSTILE):
        made.call(text, 10_000 * (i + 1), 10_000 * (i + 2), kind=HostKind.LAUNCH, parent=call, stack=frame)
    made.op(ATTACK, 600_000, 900_000, launch=call)
    made.op("k" * 1_000_000, 900_000, 1_000_000, launch=call)
    return made


PICTURE = drawn(recording().timeline(), host_places=[ATTACK] * (1 + len(HOSTILE)))


def test_every_text_is_shown_as_text_and_none_becomes_a_part_of_the_page(opened: Open) -> None:
    page = opened(as_html(RESULT, PICTURE))
    page.click("GPU 0 stream 7", 700_000)
    page.page.mouse.move(*page.point("GPU 0 stream 7", 710_000))
    page.page.locator(".harmless > summary").click()
    page.settle()

    assert page.page.locator("h1").text_content() == SHOWN
    assert page.page.locator(".finding b").first.text_content() == SHOWN
    assert page.page.locator("#integrity li").nth(1).text_content() == SHOWN
    assert page.page.locator(".details h3").text_content() == SHOWN
    assert page.page.locator(".stack li").first.text_content() == f"{SHOWN}:1 {SHOWN}"
    assert SHOWN[:100] in page.page.locator(".tooltip").text_content()
    assert page.page.evaluate("document.querySelectorAll('img, svg, iframe, object, embed, link').length") == 0
    assert page.page.evaluate("document.scripts.length") == 3
    assert page.page.evaluate(HANDLERS) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_plan_commands_edits_and_changes_are_texts_too(opened: Open, theme: str) -> None:
    plan = msgspec.convert(attacked(msgspec.to_builtins(PLANNED)), Result)
    answer = msgspec.convert(attacked(msgspec.to_builtins(ANSWER)), WhatIf)
    compared = msgspec.convert(attacked(msgspec.to_builtins(COMPARED)), DiffResult)
    pages = (
        (as_html(plan, PICTURE), (".fall .fall-title", ".fall-edit", ".fall .fall-note", ".command code")),
        (
            as_html(answer, PICTURE, PICTURE),
            (".fall .code", ".fall .fall-note", ".timeline + .timeline .run-name span"),
        ),
        (as_html(compared, PICTURE, PICTURE), ("h1", ".caveats li", "td .code", ".kernel", "td .detail")),
    )
    for html, places in pages:
        page = opened(html, theme=theme)
        page.click("GPU 0 stream 7", 700_000)
        for place in places:
            assert SHOWN[:60] in page.page.locator(place).first.text_content()
        assert page.page.evaluate("document.querySelectorAll('img, svg, iframe, object, embed, link').length") == 0
        assert page.page.evaluate("document.scripts.length") == 3
        assert page.page.evaluate(HANDLERS) == []
        assert page.page.evaluate("() => document.documentElement.scrollWidth") <= 1280


def test_a_hostile_search_and_filter_are_texts_too(opened: Open) -> None:
    page = opened(as_html(RESULT, PICTURE))
    page.press("/")
    page.page.keyboard.insert_text("</script><script>alert(1)</script>")
    page.page.locator(".matches", has_text="match").wait_for()
    page.page.keyboard.press("Enter")
    page.settle()
    page.page.get_by_label("Filter the lines").fill("<img src=x onerror=alert(1)>")

    assert page.text(".matches").endswith("of 1")


def test_names_of_any_length_leave_the_page_as_wide_as_the_window(opened: Open) -> None:
    page = opened(as_html(RESULT, PICTURE), width=390, height=844)
    page.click("GPU 0 stream 7", 950_000)

    assert page.page.locator(".details h3").text_content() == "k" * 399 + "…"
    assert page.page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_even_a_script_that_got_in_could_neither_run_nor_fetch(opened: Open) -> None:
    page = opened(as_html(TYPICAL, PICTURE))
    page.page.evaluate(
        """async () => {
            const blocked = [];
            document.addEventListener("securitypolicyviolation", e => blocked.push(e.effectiveDirective));
            window.owned = false;
            const script = document.createElement("script");
            script.textContent = "window.owned = true";
            document.body.append(script);
            const image = document.createElement("img");
            image.src = "https://evil.test/x.png";
            document.body.append(image);
            const button = document.createElement("button");
            button.setAttribute("onclick", "window.owned = true");
            document.body.append(button);
            button.click();
            await fetch("https://evil.test/").catch(() => {});
            await new Promise(done => setTimeout(done, 50));
            window.blocked = blocked;
        }"""
    )

    assert page.page.evaluate("window.owned") is False
    assert {"script-src-elem", "script-src-attr", "img-src", "connect-src"} <= set(page.page.evaluate("window.blocked"))
    page.errors.clear()  # the browser's words on what it refused
