"""`compare` of real functions: answers, agreement, tables, JSON."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from unstall import compare
from unstall.document import terminal
from unstall.errors import UsageError
from unstall.measuring.comparing.rounds import Answer
from unstall.measuring.comparison import Candidate
from unstall.measuring.shown import Comparisons, ShownComparison
from unstall.measuring.statistics import Interval, Spread


def _short(x: float = 1.0) -> float:
    return sum(range(200)) * x


def _long(x: float = 1.0) -> float:
    return sum(range(200)) * x + 0 * sum(range(2000))


def test_the_slower_of_two_is_named() -> None:
    found = compare({"short": _short, "long": _long}, 2.0, max_seconds=1)
    assert found.answer == "SLOW"
    assert found["long"].ratio.low > 3
    assert [each.best for each in found.candidates] == [True, False]
    assert (found.by, found.cache) == ("wall", "hot")


def test_a_function_that_computes_something_else_is_never_the_best() -> None:
    found = compare({"right": _long, "wrong": lambda x: x}, 1.5, max_seconds=0.2)
    assert not found.agrees
    assert found["right"].best
    assert not found["wrong"].best
    assert "wrong does not compute what right does: result is off by" in str(found)


@pytest.mark.parametrize("functions", [[_short, _long], (_short,), _short, "ab", {}, {"a": 1}])
def test_functions_without_names_are_refused(functions: object) -> None:
    with pytest.raises(UsageError, match="compare takes functions by name"):
        compare(functions)  # type: ignore[call-overload]


def test_the_margin_may_be_a_percentage() -> None:
    assert compare({"a": _short, "b": _short}, same_within="30%", max_seconds=0.05).margin == 0.3


def test_results_are_not_compared_where_that_is_not_wanted() -> None:
    found = compare({"one": lambda: 1, "other": lambda: 2}, check=False, max_seconds=0.05)
    assert found.agrees
    assert found["other"].agreement is None


def test_functions_that_change_their_input_are_checked_on_copies() -> None:
    x = torch.ones(4)
    found = compare({"a": lambda x: x.mul_(2), "b": lambda x: x.add_(x)}, x, max_seconds=0.05)
    assert found.agrees


def test_functions_that_return_one_buffer_are_told_apart() -> None:
    buffer = np.zeros(3)

    def fill(value: float) -> np.ndarray:
        buffer.fill(value)
        return buffer

    found = compare({"one": lambda: fill(1.0), "two": lambda: fill(2.0)}, max_seconds=0.05)
    assert not found.agrees


def test_functions_that_draw_random_numbers_draw_the_same() -> None:
    x = torch.ones(1000)
    found = compare(
        {"a": lambda: torch.dropout(x, 0.5, True), "b": lambda: torch.dropout(x, 0.5, True)}, max_seconds=0.05
    )
    assert found.agrees


def test_the_programs_own_random_numbers_go_on_as_without() -> None:
    torch.manual_seed(1)
    random.seed(1)
    expected = torch.rand(1), random.random()
    torch.manual_seed(1)
    random.seed(1)
    found = compare({"a": int, "b": int}, max_seconds=0.05)
    assert found.agrees
    assert (torch.rand(1), random.random()) == expected


def test_agreement_says_how_far_both_are_from_float64() -> None:
    x = torch.linspace(0, 1, 1000)
    found = compare({"mean": lambda x: x.mean(), "by hand": lambda x: x.sum() / 1000}, x, max_seconds=0.05)
    agreement = found["by hand"].agreement
    assert agreement is not None
    assert agreement.agrees
    assert agreement.error is not None
    assert agreement.error < 1e-6


def test_several_inputs_make_a_table() -> None:
    found = compare({"short": _short, "long": _long}, inputs={"one": 1.0, "two": (2.0,)}, max_seconds=0.3)
    assert [row.label for row in found] == ["one", "two"]
    assert found["two"].answer == "SLOW"
    lines = str(found).splitlines()
    assert next(line for line in lines if line.startswith("one")).count("SLOW") == 1


def test_inputs_without_names_are_named_by_what_they_are() -> None:
    found = compare({"a": lambda x, *_: x, "b": lambda x, *_: x}, inputs=[np.ones((2, 3)), (5, True)], max_seconds=0.02)
    assert [row.label for row in found] == ["2x3 float64", "5, True"]


def test_threads_are_those_asked_for() -> None:
    before = torch.get_num_threads()
    x, seen = torch.ones(1), set()

    def f() -> None:
        seen.add(torch.get_num_threads())
        x.neg()

    compare({"a": f, "b": f}, num_threads=1, check=False, max_seconds=0.05)
    assert seen == {1}
    assert torch.get_num_threads() == before


def test_it_takes_no_longer_than_it_may() -> None:
    began = time.monotonic()
    compare({"a": lambda: time.sleep(0.01), "b": lambda: time.sleep(0.0101)}, max_seconds=0.3)
    assert time.monotonic() - began < 2


def test_json_has_every_sample() -> None:
    found = compare({"a": int, "b": int}, max_seconds=0.1)
    document = json.loads(found.to_json())
    assert document["schema"] == "unstall.compare/1"
    (comparison,) = document["comparisons"]
    assert comparison["candidates"][1]["answer"] == found.answer
    assert comparison["candidates"][0]["time_ns"]["samples"] == found["a"].time.samples.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "gpu"}, "by='gpu' is none of"),
        ({"cache": "warm"}, "cache='warm' is none of"),
        ({"same_within": 2.0}, "same_within=2.0 is not between 0 and 1"),
        ({"by": "device"}, "tells no device time"),
        ({"inputs": []}, "there is none to compare at"),
    ],
)
def test_what_makes_no_sense_is_said(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare({"a": int, "b": int}, **options)  # type: ignore[call-overload]


def test_what_a_function_raises_is_passed_on() -> None:
    with pytest.raises(ZeroDivisionError):
        compare({"a": lambda: 1 / 0})


def _found(*answers: tuple[str, float, Answer | None, bool], label: str = "") -> ShownComparison:
    """A comparison of functions that took so many ns."""
    first = answers[0][1]
    return ShownComparison(
        label=label,
        candidates=tuple(
            Candidate(name, Spread.of([ns] * 9), Interval(ns / first, ns / first, ns / first), said, best)
            for name, ns, said, best in answers
        ),
        by="wall",
        cache="hot",
        margin=0.015,
        rounds=24,
        stopped="the question is answered",
        device_name="A CPU",
        versions={"torch": "2.13.0"},
    )


def test_the_table_of_one_comparison() -> None:
    shown = str(_found(("mine", 2000, None, False), ("yours", 1500, "FAST", True), ("theirs", 8e6, "SLOW", False)))
    assert (
        shown
        == """\
A CPU · torch 2.13.0 · time of a call · hot cache

             time      95 % interval        ratio  95 % interval
  mine    2.00 µs  2.00 µs - 2.00 µs
* yours   1.50 µs  1.50 µs - 1.50 µs  FAST  0.750  0.750 - 0.750
  theirs  8.00 ms  8.00 ms - 8.00 ms  SLOW  4,000  4,000 - 4,000

yours takes 25 % less time than mine (25 to 25 %)
theirs is 4,000 times as slow as mine
24 rounds by turns: the question is answered; SAME is within 1.5 %; * the best"""
    )


def test_what_computes_something_else_is_called_neither_fast_nor_slow() -> None:
    x = torch.ones(3)
    found = compare({"sum": x.sum, "mean": x.mean}, max_seconds=0.05)
    for shown in (str(found), str(Comparisons((found, found)))):
        (line,) = {line for line in shown.splitlines() if "DIFFERS" in line}
        assert not any(word in line for word in ("FAST", "SLOW", "SAME", "UNCLEAR"))


def test_the_mark_of_those_that_cannot_be_told_apart_is_explained() -> None:
    shown = str(_found(("mine", 2000, None, True), ("yours", 2010, "SAME", True)))
    assert shown.endswith("SAME is within 1.5 %; = not known\nto be slower than the best")


def test_the_table_of_several_inputs_marks_the_best_and_ties() -> None:
    small = _found(("mine", 2000, None, True), ("yours", 2010, "SAME", True), label="small")
    large = _found(("mine", 2e6, None, False), ("yours", 1e6, "FAST", True), label="large")
    lines = str(Comparisons((small, large), "Sums")).splitlines()
    assert lines[0] == "Sums"
    assert [line.split() for line in lines[4:6]] == [
        ["small", "2.00", "µs", "=", "2.01", "µs", "=", "SAME", "1.005"],
        ["large", "2.00", "ms", "1.00", "ms", "*", "FAST", "0.500"],
    ]
    assert lines[7] == "* the best, = not known to be slower than it by 1.5 %; ratios are of the time to"


def test_names_cannot_do_anything_to_a_terminal() -> None:
    shown = str(_found(("[red]\x1b[31m", 1.0, None, True), ("b", 1.0, "SAME", True)))
    assert "\x1b" not in shown
    assert "[red]" in shown


@pytest.mark.parametrize("width", [40, 50, 64, 80, 120])
def test_no_figure_is_cut_off_where_the_terminal_is_narrow(width: int) -> None:
    found = _found(("a name of quite some length", 2000, None, False), ("yours", 1500, "FAST", True))
    shown = terminal.render(found.document(), width=width)
    assert "…" not in shown
    assert "0.750" in shown
    assert max(map(len, shown.splitlines())) <= width


def test_what_cannot_be_told_from_the_best_is_marked_too() -> None:
    waits = {name: lambda: time.sleep(0.002) for name in "ab"}
    found = compare(waits, check=False, max_seconds=0.001)
    assert (found.rounds, found.answer) == (1, "UNCLEAR")
    assert [each.best for each in found.candidates] == [True, True]


def test_keywords_go_to_every_function() -> None:
    x = torch.ones(2, 3)
    functions: dict[str, Callable[..., torch.Tensor]] = {
        "sum": torch.sum,
        "mean": lambda x, dim: x.mean(dim) * x.shape[dim],
    }
    found = compare(functions, x, kwargs={"dim": 1}, max_seconds=0.05)
    assert found.agrees


def test_a_notebook_shows_it_in_html() -> None:
    html = _found(("<mine>", 2000, None, True), ("yours", 3000, "SLOW", False))._repr_html_()
    assert "&lt;mine&gt;" in html
    assert "SLOW" in html
