"""Reports of recorded runs: one in full, read and believed before it was frozen, and the parts of all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

import unstall
from unstall.answers.report import Report
from unstall.document.formats import render

ROOT = Path(__file__).parents[1]
EXAMPLES = Path("examples", "traces")
TRACES = sorted(path.name.removesuffix(".json.gz") for path in (ROOT / EXAMPLES).glob("*.json.gz"))


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@functools.cache
def report_of(name: str) -> Report:
    return unstall.explain(EXAMPLES / f"{name}.json.gz")


@pytest.mark.parametrize(("form", "ending"), [("text", "txt"), ("markdown", "md"), ("github", "github.txt")])
def test_the_report_of_a_decode_loop(form: str, ending: str, golden: Callable[[str, str], None]) -> None:
    golden(f"gpt2_decode_item.{ending}", render(report_of("gpt2_decode_item").document(), form))


@pytest.mark.parametrize("name", TRACES)
def test_every_example_has_every_format(name: str) -> None:
    document = report_of(name).document()
    assert all(len(render(document, form)) > 200 for form in ("html", "json", "markdown", "text"))
    assert render(document, "github").startswith("::notice title=unstall::")


@pytest.mark.parametrize("name", TRACES)
def test_a_report_has_the_verdict_the_accounts_each_finding_and_each_line(name: str) -> None:
    report = report_of(name)
    lines = render(report.document(), "text", top=1000).splitlines()
    text = " ".join(" ".join(lines).split())
    assert lines[0] == f"examples/traces/{name}.json.gz"
    assert max(map(len, lines)) <= 80
    assert report.verdict.text in text
    assert [note for note in report.result.integrity.notes if note not in text.replace("- ", "")] == []
    if report.verdict.bound_by == "none":
        assert "Findings" not in text
        return
    numbered = [line for line in lines if line[:1].isdigit() and ". " in line[:4]]
    planned = len(report.result.plan or ())
    wrong = sum(finding.wrong for finding in report.findings)
    assert len(numbered) == wrong + len(report.result.costly) + planned
    assert text.count(" at ") >= wrong + len(report.result.costly)
    assert ("Plan: " in text) == bool(planned)
    assert ("Not worth changing" in text) == any(each.harmless and not each.explains for each in report.findings)
    assert ("Good to know" in text) == any(finding.explains for finding in report.findings)
    shown = lines[lines.index(next(line for line in lines if line.startswith("Cost by line"))) :]
    assert len(shown) > len(report.result.lines)
