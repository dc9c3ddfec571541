"""The examples of docs/guards.md, on each kind of GPU: those that wait raise at their line, the others run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from guarding.running import GPUS, last_line

from unstall.guarding.kinds import KINDS

PAGE = Path(__file__).parents[2] / "docs/guards.md"
_SECTION = re.compile(r"^## What waits$(.*?)^## ", re.MULTILINE | re.DOTALL)
_SETTING = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(?P<waits>[^`]+)`[^`|]*\| (?P<kind>\w+) \| [^`|]*`(?P<instead>[^`]+)`", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    waits: str
    kind: str
    instead: str


def _section() -> str:
    found = _SECTION.search(PAGE.read_text("utf-8"))
    assert found is not None
    return found[1]


EXAMPLES = [Example(**row.groupdict()) for row in _ROW.finditer(_section())]


@pytest.fixture(scope="module", params=GPUS)
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """For each example: the kind, file and line of the error, or None; then the kinds of waits of its mend."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "examples.py").write_text("\n".join(_program(request.param)), "utf-8")
    outcomes: list[Any] = last_line(["examples.py"], cwd=folder)
    return outcomes


def _program(gpu: str) -> Iterator[str]:
    setting = _SETTING.search(_section())
    assert setting is not None
    yield from ("import json", "import unstall", "outcomes = []")
    yield "gpu = unstall.virtual_gpu('h200').start()" if gpu == "virtual" else ""
    yield from setting[1].splitlines()
    for example in EXAMPLES:
        yield (
            example.waits if example.kind not in ("malloc", "free") else ""
        )  # a first call loads libraries, which wait
        yield from ("try:", "    with unstall.no_sync():", f"        {example.waits}")
        yield "except unstall.SyncError as error:"
        yield "    seen = [error.wait.kind, error.wait.file, error.wait.line]"
        yield from ("else:", "    seen = None")
        yield example.instead  # what it needs is there now: memory, above all
        yield "with unstall.no_sync('count') as guard:"
        yield f"    {example.instead}"
        yield "outcomes.append([seen, [str(wait) for wait in guard.waits]])"
    yield "print(json.dumps(outcomes))"


def _lines() -> dict[Example, int]:
    """The line at which each example waits, in the program above."""
    numbers = iter(
        number for number, line in enumerate(_program("virtual"), 1) if line == "    with unstall.no_sync():"
    )
    return {example: next(numbers) + 1 for example in EXAMPLES}


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=[example.waits for example in EXAMPLES])
def test_the_example_raises_at_its_line_and_its_mend_does_not(number: int, outcomes: list[Any]) -> None:
    example = EXAMPLES[number]
    assert outcomes[number] == [[example.kind, "examples.py", _lines()[example]], []]


def test_there_is_an_example_of_each_kind() -> None:
    assert {example.kind for example in EXAMPLES} == {*KINDS} - {"library"}  # a virtual GPU loads no libraries


@pytest.mark.parametrize(
    "call",
    [
        *(".item()", "bool(", "int(", "float(", ".tolist()", ".numpy()", ".cpu()", '.to("cpu")', "print(", " if "),
        *(".nonzero()", "argwhere(", "torch.where(mask)", "x[mask]", "masked_select(", "unique(", "repeat_interleave("),
        *('batch.to("cuda")', "batch.copy_(", "pinned.copy_(", ".t().copy_(", "stream.synchronize()"),
        *("event.synchronize()", "torch.cuda.synchronize()", "torch.empty(", "empty_cache()"),
    ],
)
def test_the_page_has_an_example_of_each_call_that_is_known_to_wait(call: str) -> None:
    assert any(call in example.waits for example in EXAMPLES)
