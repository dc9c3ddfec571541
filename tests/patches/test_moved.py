"""Where a line that ran is now, if its file was changed since."""

from __future__ import annotations

import pytest

from unstall.line_digests import digest_of
from unstall.patches.moved import RanLine, line_now

_PROGRAM = """\
def evaluate(model, data):
    for x in data:
        x = x.to(device)
        y = model(x)

def train(model, data):
    model.train()
    for x in data:
        x = x.to(device)
        y = model(x)
        loss = y.sum()
        loss.backward()
        x = x.to(device)
"""
_FIRST, _AGAIN, _LOSS = 9, 13, 11  # lines of `train`


def ran(text: str = _PROGRAM, lines: range = range(8, 14), function: str = "train") -> dict[int, RanLine]:
    """The loop of `train`: neither its set-up nor `evaluate` ran while it was recorded."""
    texts = text.encode().split(b"\n")
    return {line: RanLine(digest_of(texts[line - 1]), frozenset({function})) for line in lines}


def without(*lines: int) -> str:
    return "\n".join(text for number, text in enumerate(_PROGRAM.split("\n"), 1) if number not in lines)


def test_a_line_of_a_file_that_is_as_it_ran_is_where_it_was() -> None:
    assert [line_now(line, ran(), _PROGRAM) for line in range(8, 14)] == list(range(8, 14))


@pytest.mark.parametrize(
    ("text", "moved"), [("import x\n" + _PROGRAM, 1), (without(4), -1), (without(1, 2, 3, 4, 5), -5)]
)
def test_a_line_moves_with_what_is_around_it(text: str, moved: int) -> None:
    assert [line_now(line, ran(), text) for line in (_FIRST, _LOSS, _AGAIN)] == [
        line + moved for line in (_FIRST, _LOSS, _AGAIN)
    ]


@pytest.mark.parametrize("function", ["train", "Trainer.train", "make.<locals>.train"])
def test_a_line_that_was_changed_is_not_taken_for_its_like_elsewhere(function: str) -> None:
    """The same text still stands in `evaluate`, and once more in `train` itself."""
    lines = _PROGRAM.split("\n")
    lines[_FIRST - 1] = "        x = x.to(device, non_blocking=True)"
    text = "\n".join(lines)
    assert line_now(_FIRST, ran(function=function), text) is None
    assert line_now(_AGAIN, ran(function=function), text) == _AGAIN


def test_lines_of_the_same_text_keep_their_order() -> None:
    text = without(11)
    assert (line_now(_FIRST, ran(), text), line_now(_AGAIN, ran(), text)) == (_FIRST, _AGAIN - 1)


def test_a_line_whose_text_is_not_known_is_not_found() -> None:
    assert line_now(7, ran(), "import x\n" + _PROGRAM) is None


def test_what_an_inner_function_of_no_name_ran_is_of_the_function_around_it() -> None:
    text = "def main():\n    f = lambda: x.cuda()\n    f()\n"
    both = {2: RanLine(digest_of(b"f = lambda: x.cuda()"), frozenset({"<lambda>"}))}
    assert line_now(2, both, f"\n{text}") == 3
