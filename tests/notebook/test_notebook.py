"""`%%unstall` in a real IPython shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from report.sample import TYPICAL

from unstall.answers.report import Report
from unstall.document.formats import render
from unstall.notebook.cell_magic import Framed
from unstall.recording.settings import LineClockName

interactive = pytest.importorskip("IPython.core.interactiveshell")
capture = pytest.importorskip("IPython.utils.capture")
config = pytest.importorskip("traitlets.config")


@dataclass(frozen=True)
class Notebook:
    """A shell, and what it shows."""

    shell: Any

    def run(self, cell: str) -> tuple[Any, Any]:
        """IPython's result of the cell, and what was captured: stdout, stderr, outputs."""
        with capture.capture_output() as captured:
            result = self.shell.run_cell(cell)
        return result, captured


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A shell in which unstall was loaded, and which leaves nothing in the user's home."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    quiet = config.Config({"HistoryManager": {"enabled": False}, "InteractiveShell": {"colors": "nocolor"}})
    shell = interactive.InteractiveShell.instance(config=quiet)
    shell.run_line_magic("load_ext", "unstall")
    yield Notebook(shell)
    interactive.InteractiveShell.clear_instance()


def test_a_cell_has_its_value_and_its_names_as_without_the_magic(notebook: Notebook) -> None:
    result, _ = notebook.run("%%unstall\nnumber = 6\ndouble = lambda x: 2 * x\ndouble(number)")
    assert result.result == 12
    assert notebook.shell.user_ns["number"] == 6
    assert notebook.shell.user_ns["double"](4) == 8


def test_a_cell_that_ends_with_a_statement_has_no_value(notebook: Notebook) -> None:
    result, _ = notebook.run("%%unstall\nnumber = 6")
    assert result.success
    assert result.result is None


def test_a_cell_in_which_nothing_was_recorded_says_so_in_one_sentence(notebook: Notebook) -> None:
    result, captured = notebook.run("%%unstall --lines none --steps 3\npass")
    assert result.success
    assert captured.stderr.startswith("unstall: nothing was recorded: ")
    assert captured.stderr.count("\n") == 1
    assert captured.outputs == []


def test_an_exception_is_shown_as_usual_and_the_recording_is_spoken_of_anyway(notebook: Notebook) -> None:
    result, captured = notebook.run("%%unstall --steps 3\nnumber = 6\nnumber / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert captured.stdout.rstrip().endswith("ZeroDivisionError: division by zero")
    assert captured.stderr.startswith("unstall: nothing was recorded")


def test_no_cell_leaves_files_behind(notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it raises: the traceback, which IPython keeps, holds on to the recording."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for cell in ("%%unstall --steps 3\n1 / 0", "%%unstall --lines none\npass"):
        notebook.run(cell)
    assert not list(tmp_path.glob("unstall-*"))


def test_help_is_printed_and_nothing_runs(notebook: Notebook) -> None:
    for cell in ("%%unstall --help", "%%unstall -h\nran = True"):
        result, captured = notebook.run(cell)
        assert result.success
        assert captured.stdout.startswith("usage: %%unstall [-h]")
        assert "-o FILE" in captured.stdout
        assert captured.stderr == ""
    assert "ran" not in notebook.shell.user_ns


def test_the_magic_alone_says_that_there_is_no_code(notebook: Notebook) -> None:
    _, captured = notebook.run("%%unstall\n\n")
    assert captured.stderr == "UsageError: %%unstall: there is no code below it, so nothing to run and explain\n"


def test_a_raising_cell_has_the_number_of_its_cell(notebook: Notebook) -> None:
    notebook.shell.run_cell("first = 1", store_history=True)
    with capture.capture_output() as captured:
        notebook.shell.run_cell("%%unstall --steps 3\nfirst / 0", store_history=True)
    assert captured.stdout.count("In[2], line ") == 2
    assert "In[3]" not in captured.stdout


ON_A_VIRTUAL_GPU = """
import sys
import unstall
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

gpu = unstall.virtual_gpu("h200").start()
gpu.stop()
shell = InteractiveShell.instance()
shell.history_manager.enabled = False
shell.run_line_magic("load_ext", "unstall")
shell.run_cell("import torch\\nw = torch.ones(8, 8).cuda()\\ndef step():\\n    return (w @ w).sum().item()", True)
with capture_output() as captured:
    shell.run_cell("%%unstall -o report.json -o report.html\\nfor _ in range(20):\\n    step()\\n1 / 0", True)
(shown,) = captured.outputs
assert shown.data["text/html"].startswith("<iframe")
assert "ZeroDivisionError" in captured.stdout
print(shown.data["text/plain"])
"""


def test_places_are_cells_and_nothing_is_of_the_notebook_itself(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text(ON_A_VIRTUAL_GPU)
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "notebook.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "In[1]:4 in step" in done.stdout
    result = json.loads((tmp_path / "report.json").read_text())
    places = [finding["where"] for finding in result["findings"]] + [line["where"] for line in result["lines"]]
    places += [place["called_from"] for place in places if place.get("called_from")]
    assert {place["file"] for place in places if place.get("file")} == {"In[1]", "In[2]"}
    assert (tmp_path / "report.html").stat().st_size > 50_000


@pytest.mark.slow
def test_what_torch_did_in_a_cell_is_explained_below_it(notebook: Notebook) -> None:
    pytest.importorskip("torch")
    cell = "%%unstall --recorder torch\nimport torch\nfloat(torch.ones(64, 64).matmul(torch.ones(64, 64)).sum())"
    result, captured = notebook.run(cell)
    assert result.result == 64.0**3
    (shown,) = captured.outputs
    assert shown.data["text/html"].startswith("<iframe ")


def test_lines_are_numbered_as_the_notebook_shows_them(notebook: Notebook) -> None:
    _, captured = notebook.run("%%unstall --steps 3\nnumber = 6\n\nnumber / 0")
    assert "----> 4 number / 0" in captured.stdout
    assert "notebook.py" not in captured.stdout


def test_the_next_cell_can_be_recorded_after_one_that_failed(notebook: Notebook) -> None:
    notebook.run("%%unstall --steps 3\n1 / 0")
    result, captured = notebook.run("%%unstall --steps 3\n'fine'")
    assert result.result == "fine"
    assert "under way" not in captured.stderr


def test_magics_work_within_the_cell(notebook: Notebook) -> None:
    result, captured = notebook.run("%%unstall --steps 3\n%%time\nnumber = 7")
    assert result.success
    assert "Wall time" in captured.stdout
    assert notebook.shell.user_ns["number"] == 7


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--recorder nvprof", "argument --recorder: invalid choice: 'nvprof'"),
        ("--steps many", "argument --steps: invalid int value: 'many'"),
        ("--steps 0", "steps=0: record at least one step"),
        ("--colour", "unrecognized arguments: --colour"),
        ("'--steps", "No closing quotation"),
        ("-o report.pdf", "report.pdf: its ending names no format"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_the_cell_runs(
    notebook: Notebook, options: str, why: str
) -> None:
    result, captured = notebook.run(f"%%unstall {options}\nran = True")
    assert not result.success
    assert captured.stderr.startswith("UsageError: ")
    assert why in captured.stderr
    assert "ran" not in notebook.shell.user_ns


def test_every_way_to_follow_lines_can_be_asked_for(notebook: Notebook) -> None:
    for lines in set(get_args(LineClockName)) - ({"monitoring"} if sys.version_info < (3, 12) else set()):
        result, captured = notebook.run(f"%%unstall --lines {lines} --steps 3\n'ran'")
        assert result.result == "ran"
        assert captured.stderr.startswith("unstall: nothing was recorded")


def test_a_cell_that_cannot_be_compiled_is_not_recorded(notebook: Notebook) -> None:
    result, captured = notebook.run("%%unstall\nnumber = = 6")
    assert isinstance(result.error_in_exec, SyntaxError)
    assert captured.stderr == ""


class _Frame(HTMLParser):
    """The attributes of the tags in a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_a_report_is_shown_as_the_html_report_in_a_frame_of_its_own() -> None:
    report = Report(TYPICAL)
    ((tag, attributes),) = _Frame(Framed(report)._repr_html_()).tags
    assert tag == "iframe"
    assert attributes["srcdoc"] == render(report.document(), "html")
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["style"] == "width: 100%; height: 720px; border: 0"


def test_a_report_is_text_where_html_cannot_be_shown() -> None:
    assert repr(Framed(Report(TYPICAL))) == str(Report(TYPICAL))


@pytest.mark.parametrize(
    ("name", "subpackage"), [("record", "unstall.recording.clocks"), ("whatif", "unstall.what_if.edits")]
)
def test_a_public_function_keeps_its_name_beside_a_subpackage_of_that_name(name: str, subpackage: str) -> None:
    code = f"import unstall, {subpackage}; print(type(unstall.{name}).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "function\n"
