"""What the README and the pages in docs/ show is what a reader gets.

`pytest tests/test_readme.py --update-goldens` writes what commands print now into the pages.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import json
import re
import shlex
from pathlib import Path

import pytest
from traces import TraceBuilder

import unstall
from benchmarks.whatif_page import page as predictions
from unstall.budgets.limits import LIMITS
from unstall.cli import build_parser, main, verbs
from unstall.cli._recording import Teller
from unstall.fleets.identity import identify
from unstall.recording.journal import Follower, Journal

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md")))
TEXTS = (*PAGES, "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")

# A command with all that it prints, or with `head -20` behind it, the first lines of that.
_SAMPLE = re.compile(r"^```\n\$ ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAME_ANYWHERE = ("unstall explain ", "unstall whatif ", "unstall diff ", "unstall report ", "unstall check ")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|run: |-m )(unstall (?!\[).+?)(?: \||  #|$)", re.MULTILINE)
_LINK = re.compile(r'\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"')


@pytest.mark.parametrize("page", PAGES)
def test_samples_are_what_the_commands_print(
    page: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(ROOT)
    text = _text(page)
    now = _SAMPLE.sub(_sampled, text)
    if text != now and request.config.getoption("--update-goldens"):
        (ROOT / page).write_text(now, "utf-8")
    assert _text(page) == now


def test_there_are_samples() -> None:
    """The test above does not pass because it finds none."""
    samples = [match[1] for page in PAGES for match in _SAMPLE.finditer(_text(page))]
    assert {"check", "explain", "whatif", "diff"} <= {sample.split()[1] for sample in samples}


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_understood(page: str) -> None:
    for language, block in _BLOCK.findall(_text(page)):
        if language in ("sh", "yaml"):
            for command in filter(_is_whole, _COMMAND.findall(block)):
                _, *words = shlex.split(command)
                _, unknown = build_parser().parse_known_args(words)
                assert unknown == [], command


@pytest.mark.parametrize("page", PAGES)
def test_code_is_python_and_names_what_is_public(page: str) -> None:
    for language, block in _BLOCK.findall(_text(page)):
        if language == "python":
            ast.parse(block)
            named = set(re.findall(r"\bunstall\.(\w+)", block))
            assert named <= set(unstall.__all__)


@pytest.mark.parametrize("text", TEXTS)
def test_links_lead_to_what_is_in_the_repository(text: str) -> None:
    for target in filter(None, (match[1] or match[2] for match in _LINK.finditer(_text(text)))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        page = ((ROOT / text).parent / path).resolve() if path else ROOT / text
        assert page.is_relative_to(ROOT), target
        assert page.exists(), target
        assert not anchor or anchor in _anchors(page.read_text("utf-8")), target


@pytest.mark.parametrize("page", ["docs/run.md", "docs/fleet.md"])
def test_traces_of_torch_profiler_have_names_that_tell_the_rank(page: str) -> None:
    text = _text(page)
    names = re.findall(r'(?:export_chrome_trace\(|worker_name=)f"([^"]+)"', text)
    assert names
    assert 'export_chrome_trace("' not in text
    for name in names:
        assert identify(TraceBuilder().timeline(), Path(re.sub(r"\{[^}]+\}", "3", name))).rank == 3


def test_the_page_of_predictions_is_that_of_its_figures(request: pytest.FixtureRequest) -> None:
    made = predictions(json.loads(_text("benchmarks/results/whatif.json")))
    if request.config.getoption("--update-goldens"):
        (ROOT / "docs/predictions.md").write_text(made, "utf-8")
    assert _text("docs/predictions.md") == made


def test_the_readme_is_short() -> None:
    assert len(_text("README.md").splitlines()) <= 120


def test_every_page_is_in_the_list() -> None:
    listed = _text("docs/README.md")
    assert [page for page in PAGES if not page.endswith("README.md") and f"({Path(page).name})" not in listed] == []


def test_every_verb_is_in_the_list() -> None:
    assert [verb for verb in verbs() if f"`unstall {verb}" not in _text("docs/commands.md")] == []


@pytest.mark.parametrize("verb", ["explain", "run", "whatif", "diff"])
def test_every_option_is_on_its_page(verb: str) -> None:
    options = {option for option in _options_of(verb) if option.startswith("--")}
    page = _text(f"docs/{verb}.md")
    output = _text("docs/commands.md").partition("## Output")[2].partition("##")[0]
    assert len(options) >= 10
    assert sorted(option for option in options - {"--help"} if option not in page and option not in output) == []


def test_every_budget_is_on_its_page() -> None:
    assert [limit.option for limit in LIMITS if f"`--{limit.option}" not in _text("docs/ci.md")] == []


def test_what_a_recording_says_is_what_the_command_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstall.cli._recording.has_gpu", lambda: True)
    journal = Journal(str(tmp_path))
    journal.write("window", recorder="cupti")
    journal.write("recorded", steps=5, by="optimizer")
    Teller(Follower(tmp_path), quiet=False).tell()
    said = capsys.readouterr().err
    assert said.count("\n") == 2
    assert said in _text("docs/run.md")


def _text(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def _sampled(match: re.Match[str]) -> str:
    command, _, head = match[1].partition(" | head -")
    if not command.startswith(_SAME_ANYWHERE):
        return match[0]
    lines = _printed(command).splitlines(keepends=True)
    return f"```\n$ {match[1]}\n{''.join(lines[: int(head) if head else None])}```"


@functools.cache
def _printed(command: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        assert main(shlex.split(command)[1:]) == ("unstall check" in command)  # whose sample exceeds a budget
    return stdout.getvalue()


def _anchors(page: str) -> set[str]:
    """The names that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _is_whole(command: str) -> bool:
    """Whether it can be typed as it stands: brackets are around what may be left out."""
    return " [-" not in command


def _options_of(verb: str) -> list[str]:
    parser = build_parser()
    subparsers = next(action for action in parser._actions if isinstance(action.choices, dict))
    assert isinstance(subparsers.choices, dict)
    return [option for action in subparsers.choices[verb]._actions for option in action.option_strings]
