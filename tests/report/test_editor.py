"""Links to the user's editor: which files the HTML page knows, and where from it may open them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from report.sample import TYPICAL
from report.test_html import block

from unstall.answers.report import Report
from unstall.cli import main
from unstall.document import html
from unstall.errors import UsageError
from unstall.report import editor
from unstall.result import LineCost, Result, Where

TRACE = Path("examples/traces/decode_item.json.gz").resolve()


def naming(*files: str) -> Result:
    lines = tuple(
        LineCost(where=Where(file=file, line=1), launches=0, device_ops=0, device_ns=0, wait_ns=0, idle_ns=0)
        for file in files
    )
    return msgspec.structs.replace(TYPICAL, findings=(), lines=lines)


def links(page: str) -> Any:
    return json.loads(block(page, "result")).get("editor")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with train.py and models/net.py in it, beside a file that is not below it."""
    folder = tmp_path / "program"
    (folder / "models").mkdir(parents=True)
    for file in ("program/train.py", "program/models/net.py", "program/notes.txt", "other.py"):
        (tmp_path / file).touch()
    monkeypatch.chdir(folder)
    monkeypatch.delenv(editor.SETTING, raising=False)
    return folder


def saved(result: Result, path: str, **more: bool) -> Any:
    Report(result, None).save(path, **more)
    return links(Path(path).read_text("utf-8"))


def test_paths_are_those_from_the_page_so_none_is_absolute(program: Path) -> None:
    (program / "out").mkdir()
    absolute = str(program / "models/net.py")
    found = saved(naming("train.py", absolute), "out/report.html")

    assert found["paths"] == {"train.py": "../train.py", absolute: "../models/net.py"}
    assert found["page"] == editor.digest(program / "out/report.html")


def test_a_page_beside_the_current_folder_has_no_links_since_they_would_spell_its_path(
    program: Path, tmp_path: Path
) -> None:
    assert saved(naming("train.py"), str(tmp_path / "report.html")) is None


@pytest.mark.parametrize(
    "file", ["gone.py", "../other.py", "models/../train.py", "notes.txt", "models", "out.py", "/etc/hosts", "In[3]"]
)
def test_only_files_of_python_below_the_current_folder_are_known(program: Path, file: str) -> None:
    (program / "out.py").symlink_to(program.parent / "other.py")

    assert saved(naming(file), "report.html") is None
    assert saved(naming(file, "train.py"), "report.html")["paths"] == {"train.py": "train.py"}


def test_the_page_knows_itself_by_the_digest_that_the_browser_makes() -> None:
    assert editor.digest(Path("/home/ada/my runs/report.html")) == 2388910751  # as in web/test/editor.test.ts


@pytest.mark.parametrize(("name", "scheme"), [("", "vscode:"), ("cursor", "cursor:"), ("pycharm", "pycharm:")])
def test_the_environment_names_the_editor(
    program: Path, monkeypatch: pytest.MonkeyPatch, name: str, scheme: str
) -> None:
    monkeypatch.setenv(editor.SETTING, name)

    assert saved(naming("train.py"), "report.html")["address"].startswith(f"{scheme}//")


def test_none_makes_no_links(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(editor.SETTING, "none")

    assert saved(naming("train.py"), "report.html") is None


def test_an_unknown_editor_is_an_error(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(editor.SETTING, "vi")

    with pytest.raises(UsageError, match=r"UNSTALL_EDITOR is 'vi': make it one of vscode, .*, none"):
        saved(naming("train.py"), "report.html")


def test_the_command_says_so_before_it_works(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(editor.SETTING, "vi")

    assert main(["explain", "no_such_trace.json", "-o", "report.html"]) == 2
    assert "UNSTALL_EDITOR is 'vi'" in capsys.readouterr().err


def test_with_short_paths_there_are_no_links(program: Path) -> None:
    assert saved(naming("train.py"), "report.html", scrub_paths=True) is None


def test_a_page_that_is_not_written_to_a_file_has_no_links(program: Path) -> None:
    assert links(html.render(Report(naming("train.py"), None).document())) is None


@pytest.mark.parametrize(
    "verb",
    [["explain", "t.json.gz"], ["whatif", "t.json.gz", "--edit", "remove-syncs"], ["diff", "t.json.gz", "t.json.gz"]],
)
def test_every_verb_with_a_timeline_links(program: Path, verb: list[str]) -> None:
    shutil.copy(TRACE, "t.json.gz")
    (program / "programs").mkdir()
    (program / "programs/launches.py").touch()

    assert main([*verb, "-o", "report.html", "--quiet"]) == 0
    assert links(Path("report.html").read_text("utf-8"))["paths"] == {"programs/launches.py": "programs/launches.py"}
