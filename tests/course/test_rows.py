"""Every row of the course: its script on a virtual T4 and a virtual H200, and the form of script, row and notebook."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from course.experiments import not_run

import unstall.diagnose
import unstall.report
from unstall.course.against_author import against_author
from unstall.course.answer import Studied
from unstall.course.figures import figure
from unstall.course.notebook import notebook
from unstall.course.recorded import heading, recorded
from unstall.course.result import Experiment
from unstall.course.row import Row
from unstall.course.running import run
from unstall.course.table import SCRIPTS, names, script, table
from unstall.document.terminal import render
from unstall.guest.device import has_gpu

ROWS = table()
SAYS = {
    "a_stream_does_not_wait_for_another": "  aten::sum on the side stream, line 23\n",
    "reading_a_value_waits": "  line 27   work().tolist()  # waits\n",
    "an_index_fails_later": "The wrong index is at line 21   features = table(ids)",
}
"""What scripts print besides figures."""
_QUICK = (
    "an_index_fails_later",
    "a_leak_or_the_cache",
    "launches_return_at_once",
    "reading_a_value_waits",
    "when_two_streams_help",
    "gpu_puzzles",
)


@pytest.mark.parametrize("gpu", ["t4", pytest.param("h200", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in _QUICK else pytest.mark.ci) for name in ROWS])
def test_the_phenomenon_is_seen(name: str, gpu: str) -> None:
    if ROWS[name].needs:
        pytest.importorskip(ROWS[name].needs, reason=f"{ROWS[name].needs}: not installed")
    found = run(script(name), ROWS[name], gpu)
    assert found.failure == "", found.said
    assert [f"{check.sentence} {check.reason}" for check in found.checks if not check.holds] == []
    assert SAYS.get(name, "") in found.output
    assert found.gpu == (gpu if ROWS[name].on_gpu else None)
    labels = [each.label for each in found.figures]
    assert len(labels) == len(set(labels))
    author = ROWS[name].author
    assert author is None or set(author.figures) <= set(labels)
    device = {"t4": "Tesla T4", "h200": "NVIDIA H200"}[gpu]
    compared = against_author(ROWS[name], device, {each.label: each.text for each in found.figures})
    assert [each.label for each in compared if each.missed and not each.why] == []


@pytest.mark.slow
def test_a_metric_buffer_that_waits_in_each_step_is_seen(tmp_path: Path) -> None:
    name = "metrics_are_read_later"
    source = script(name).read_text("utf-8")
    waits = source.replace("metrics.add(loss=loss_of(batch))", "metrics.add(loss=loss_of(batch)); metrics.flush()")
    assert waits != source
    path = tmp_path / f"{name}.py"
    path.write_text(waits, "utf-8")
    wrong = [check.sentence for check in run(path, ROWS[name], "t4").checks if not check.holds]
    assert wrong == ["A MetricBuffer does not make host and GPU take turns."]


@pytest.mark.slow
@pytest.mark.parametrize("wait", ["returned[slot]", "copied[slot]", "computed[slot]"])
def test_a_missing_wait_is_a_race_of_strategy_b(tmp_path: Path, wait: str) -> None:
    name = "items_stream_through_the_gpu"
    source = script(name).read_text("utf-8")
    without = re.sub(rf"\n.*wait_event\({re.escape(wait)}\).*", "", source)
    assert without.count("\n") == source.count("\n") - 1
    path = tmp_path / f"{name}.py"
    path.write_text(without, "utf-8")
    wrong = [check.sentence for check in run(path, ROWS[name], "t4").checks if not check.holds]
    assert "No way has a race." in wrong


def test_a_row_whose_package_is_missing_says_how_to_get_it() -> None:
    name, row = next(iter(ROWS.items()))
    found = run(script(name), replace(row, needs="no_such_package"), None)
    assert found.failure == "the script needs no_such_package: pip install no_such_package"
    assert {(check.holds, check.reason) for check in found.checks} == {(None, "the script needs no_such_package")}


@pytest.mark.parametrize("gpu", ["t4", "h200"])
@pytest.mark.parametrize("name", ROWS)
def test_figures_are_beside_each_other_in_80_columns(name: str, gpu: str) -> None:
    """If there is no room for all columns, some are left out: those of the author and of this run never are."""
    of = recorded()[heading(gpu, virtual=True)].figures[name]
    row = ROWS[name]
    found = Experiment(
        name=name,
        number=row.number,
        question=row.question,
        gpu=gpu,
        output="",
        said="",
        failure="",
        figures=tuple(figure(label, text) for label, text in of.items()),
        checks=(),
        learn="",
        host=row.host,
    )
    said = render(Studied([found]).document(), width=80)
    assert ("The host's own work, such as NumPy's, was measured on this machine" in said) == (row.host == "mixed")
    lines = said.partition("\nfigures")[2].partition("\n\n")[0].splitlines()
    for label, text in of.items():
        author = row.author.figures.get(label, "-") if row.author else ""
        assert any(
            line.endswith(f" {text}") and author in line and label.startswith(line.split("  ")[0]) for line in lines
        ), said


def test_each_script_has_a_row_and_each_row_a_number_of_its_own() -> None:
    assert [path.stem for path in sorted(SCRIPTS.glob("*.py"))] == names()
    numbers = [row.number for row in ROWS.values()]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("name", ROWS)
def test_a_script_is_short_and_says_what_it_is_about(name: str) -> None:
    source = script(name).read_text("utf-8")
    assert 10 <= len(source.splitlines()) <= 64
    assert ast.get_docstring(ast.parse(source))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_asks_and_answers_in_sentences(name: str) -> None:
    row = ROWS[name]
    assert row.question.endswith("?")
    assert 1 <= len(re.findall(r"[.!?](?=\s|$)", row.learn)) <= 9
    assert row.checks
    for check in row.checks:
        assert check.sentence.endswith(".")
        assert check.over is not None or check.equal is not None or check.at_least > 0 or check.at_most < 1e6


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "\n" in row.change])
def test_code_to_change_to_is_python_and_stands_as_it_is_in_answer_and_notebook(name: str) -> None:
    row = ROWS[name]
    text, _, code = row.change.partition("\n")
    assert text.endswith(":")
    assert ast.parse(code).body
    assert max(map(len, code.splitlines())) <= 80
    made = json.loads(notebook(name, row, script(name).read_text("utf-8")))
    assert any(f"\n```python\n{code}\n```" in "".join(cell["source"]) for cell in made["cells"])
    of = not_run(name, row, change=row.change)
    assert f"\n{code}\n" in render(Studied([of]).document(), width=80)


def test_what_a_row_says_that_a_report_says_is_what_a_report_says() -> None:
    folders = (Path(str(package.__file__)).parent for package in (unstall.diagnose, unstall.report))
    reports = " ".join(path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))
    for name in ("a_full_queue_makes_launches_slow", "when_two_streams_help", "a_graph_launches_once"):
        quoted = re.findall(r'"(.+?)"', ROWS[name].mine)
        assert quoted
        assert [words for words in quoted if words not in reports] == []


def test_a_source_is_an_address() -> None:
    assert all(re.fullmatch(r"https://[\w./-]+", row.source) for row in ROWS.values() if row.source)


@pytest.mark.parametrize("name", ROWS)
def test_an_authors_figures_are_figures_and_what_is_said_of_them_is_of_some(name: str) -> None:
    row = ROWS[name]
    for author in [row.author] if row.author else []:
        for label, text in author.figures.items():
            assert figure(label, text).text == text
        assert {*author.within, *author.used, *row.missed} <= set(author.figures)


@pytest.mark.parametrize("name", ROWS)
def test_a_notebook_has_the_whole_script(name: str) -> None:
    row: Row = ROWS[name]
    source = script(name).read_text("utf-8")
    made = json.loads(notebook(name, row, source))
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    cells = made["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        assert cell["cell_type"] in ("code", "markdown")
        assert "".join(cell["source"]).strip()
        assert {"execution_count", "outputs"} <= set(cell) or cell["cell_type"] == "markdown"
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert code.count("virtual_gpu(") >= 1
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert ("**Which case is mine?** " in text) == bool(row.mine)
    assert row.source in text
    dumped = ast.dump(ast.parse(code))
    for node in ast.parse(source).body[1:]:
        assert ast.dump(node) in dumped


@pytest.mark.skipif(has_gpu(), reason="it is about a machine without a GPU")
def test_the_cells_of_a_notebook_run_without_a_gpu(tmp_path: Path) -> None:
    name = "the_allocator_keeps_memory"
    made = json.loads(notebook(name, ROWS[name], script(name).read_text("utf-8")))
    path = tmp_path / "cells.py"
    path.write_text("\n".join("".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert "largest first: 48.0 MiB" in done.stdout, done.stderr
