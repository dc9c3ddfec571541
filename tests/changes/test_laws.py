"""What holds of any two runs."""

from __future__ import annotations

import msgspec
from hypothesis import given
from profiles import examples
from programs import Program, programs

from unstall.changes.result import DiffResult
from unstall.changes.runs import diff
from unstall.diagnose.explain import Diagnosis, explain
from unstall.document.formats import FORMATS, render
from unstall.report.diff import document

_OTHER = {"new": "gone", "gone": "new", "pinned": "pageable", "pageable": "pinned"}
_OTHER |= {"blocking": "non-blocking", "non-blocking": "blocking"}


def _report(program: Program) -> Diagnosis:
    return explain(program.timeline())


def _turned(raw: object) -> object:
    """A comparison's parts as the comparison the other way round has them."""
    match raw:
        case {"a": a, "b": b, **rest}:
            return {"a": b, "b": a} | {key: _turned(item) for key, item in rest.items()}
        case dict():
            names = {"where_a": "where_b", "where_b": "where_a"}
            turned = {names.get(key, key): _turned(item) for key, item in raw.items()}
            for key in ("status", "became"):
                if key in turned:
                    turned[key] = _turned_words(turned[key])
            return turned
        case list() | tuple():
            return [_turned(item) for item in raw]
        case _:
            return raw


def _turned_words(words: object) -> object:
    if isinstance(words, str):
        return _OTHER.get(words, words)
    assert isinstance(words, list)
    return [_OTHER.get(word, word) for word in words]


@examples(40)
@given(programs())
def test_a_run_does_not_differ_from_itself(program: Program) -> None:
    report = _report(program)
    result = diff(report, report)
    assert result.empty == bool(result.step_ns)
    assert (result.waits, result.copies, result.kernels, result.lines) == ((), (), (), ())
    if result.step_ns:
        assert result.summary.text.startswith("No difference: ")


@examples(40)
@given(programs(), programs())
def test_the_other_way_round_it_is_the_mirror_image(one: Program, other: Program) -> None:
    a, b = _report(one), _report(other)
    there, back = diff(a, b), diff(b, a)
    for field in ("step_ns", "accounts", "waits", "copies", "launches", "kernels", "lines", "unchanged", "matched_by"):
        plain = [msgspec.json.decode(msgspec.json.encode(getattr(result, field))) for result in (there, back)]
        assert _turned(plain[0]) == plain[1], field
    assert (there.summary.faster, back.summary.faster) in ((None, None), ("a", "b"), ("b", "a"))
    assert there.summary.ratio == back.summary.ratio


@examples(20)
@given(programs(), programs())
def test_every_format_shows_any_comparison_and_json_gives_it_back(one: Program, other: Program) -> None:
    result = diff(_report(one), _report(other))
    texts = {name: render(document(result), name) for name in FORMATS}
    assert msgspec.json.decode(texts["json"], type=DiffResult) == result
    assert all(len(line) <= 80 for line in texts["text"].splitlines())
