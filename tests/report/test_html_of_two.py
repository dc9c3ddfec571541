"""The HTML pages of `whatif` and `diff`, as texts and as the command line writes them."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest
from report.answers import ANSWER, COMPARED, PAIR
from report.rendered import as_html, as_text
from report.test_html import block

from unstall.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples/traces"
EMPTY = resources.files("unstall.document").joinpath("page.html").read_text("utf-8")


def blocks(page: str, name: str) -> list[str]:
    """The base64 of each data block in this place."""
    return page.partition(f'<script id="{name}-data" type="application/octet-stream">')[2].partition("<")[0].split("\n")


@pytest.mark.parametrize("page", [as_html(ANSWER, *PAIR), as_html(COMPARED, *PAIR)])
def test_the_page_is_the_same_but_for_its_result_and_two_pictures(page: str) -> None:
    (result,), pictures = blocks(page, "result"), blocks(page, "picture")

    assert len(pictures) == 2
    assert page == EMPTY.replace("{{result}}", result).replace("{{picture}}", "\n".join(pictures))


def test_an_answers_page_is_given_the_conclusion_that_other_formats_print() -> None:
    result = json.loads(block(as_html(ANSWER), "result"))

    assert result["schema"] == "unstall.whatif/1"
    assert result["conclusion"] in as_text(ANSWER)


def test_a_comparison_without_its_runs_has_no_picture() -> None:
    page = as_html(COMPARED)

    assert json.loads(block(page, "result"))["schema"] == "unstall.diff/1"
    assert blocks(page, "picture") == [""]


def test_whatif_writes_a_page_with_both_runs(tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    assert main(["whatif", str(EXAMPLES / "decode_item.json.gz"), "--edit", "remove-syncs", "-q", "-o", str(out)]) == 0
    page = out.read_text("utf-8")

    assert json.loads(block(page, "result"))["edits"][0]["edit"] == "remove-syncs"
    assert len(blocks(page, "picture")) == 2
    assert len(page) < 300_000


def test_diff_writes_a_page_with_both_runs_and_scrubs_them(tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    traces = [str(EXAMPLES / name) for name in ("offload_in_order.json.gz", "offload_ahead.json.gz")]
    assert main(["diff", *traces, "-q", "--scrub-paths", "-o", str(out)]) == 0
    page = out.read_text("utf-8")

    assert len(blocks(page, "picture")) == 2
    assert str(EXAMPLES).encode() not in block(page, "result")
    assert json.loads(block(page, "result"))["a"]["source"]["path"] == "offload_in_order.json.gz"
