"""Markdown for pull requests: read by a Markdown parser, whatever the names hold."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from markdown_it import MarkdownIt
from markdown_it.token import Token
from report.rendered import as_markdown
from report.sample import HOSTILE, NO_DEVICE, TYPICAL, results, texts

from unstall.document import markdown
from unstall.document.plain import plain
from unstall.result import Result

_GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_OUR_HTML = re.compile(r"<!-- -->|<br>|<details>|</details>|<summary>[^<>]*</summary>|</?sub>|\s")


def test_a_run_without_a_device_has_a_verdict_and_notes_and_no_table() -> None:
    text = as_markdown(NO_DEVICE)
    assert _shape(text).count("table_open") == 0
    assert "**No work on a device was recorded.**" in text
    assert "**Integrity: something is missing or damaged, so figures may be wrong**:\n- The file is cut off" in text


def _tokens(text: str) -> list[Token]:
    """All tokens, those inside lines too."""
    tokens: list[Token] = []
    for token in _GITHUB.parse(text):
        tokens += [token, *(token.children or [])]
    return tokens


def _shape(text: str) -> list[str]:
    """The structure: what kinds of block there are, in what order."""
    return [token.type for token in _GITHUB.parse(text)]


@given(results())
def test_no_name_becomes_a_link_an_image_or_html(result: Result) -> None:
    for token in _tokens(as_markdown(result)):
        assert token.type not in {"link_open", "image"}
        if token.type in {"html_inline", "html_block"}:
            assert _OUR_HTML.sub("", token.content) == ""


@given(texts)
def test_escaped_text_is_one_paragraph_that_reads_as_the_text(text: str) -> None:
    escaped = markdown.escape(text)
    tokens = _GITHUB.parse(escaped)
    shown = "".join(
        child.content for token in tokens for child in token.children or [] if child.type in {"text", "text_special"}
    )
    assert shown == plain(text).strip()
    assert {token.type for token in tokens} <= {"paragraph_open", "inline", "paragraph_close"}


@given(texts)
def test_a_code_span_shows_the_text_and_stays_one(text: str) -> None:
    span = markdown.code(text)
    children = [child for token in _GITHUB.parse(span) for child in token.children or []]
    assert [child.type for child in children] == (["code_inline"] if span else [])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_leaves_the_structure_as_it_is(name: str) -> None:
    where = msgspec.structs.replace(TYPICAL.findings[0].where, file=name, function=name, op=name)
    finding = msgspec.structs.replace(TYPICAL.findings[0], title=f"x{name}", saw=name, where=where)
    line = msgspec.structs.replace(TYPICAL.lines[0], where=where)
    hostile = msgspec.structs.replace(TYPICAL, findings=(finding,), lines=(line,))
    tame = msgspec.structs.replace(TYPICAL, findings=TYPICAL.findings[:1], lines=TYPICAL.lines[:1])
    assert _shape(as_markdown(hostile)) == _shape(as_markdown(tame))


def test_nobody_is_mentioned() -> None:
    assert markdown.escape("thanks to @everyone") == "thanks to @<!-- -->everyone"


def test_top_limits_findings_and_lines() -> None:
    text = as_markdown(TYPICAL, top=1)
    assert "… and 2 more." in text
    assert "Cost by line, per step: 1 of 4" in text
