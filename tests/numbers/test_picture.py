"""The differences along a run, as a chart and as data."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from planted_numbers import Plain, Scaled, made

import unstall
from unstall.document.document import Chart
from unstall.numbers.answer import Numbers, Row
from unstall.numbers.picture import chart
from unstall.rounding.judge import Compared, Pair
from unstall.rounding.operators import Place
from unstall.rounding.samples import Seen


@pytest.fixture(scope="module")
def numbers() -> Numbers:
    x = torch.randn(4, 12, 48, generator=torch.Generator().manual_seed(3))
    return unstall.compare_numbers(made(Plain), x, across=["repeat", "float64", made(Scaled)])


def pair(kind: str, name: str, difference: float, *, size: float = 1.0, rounding: float = 1e-7) -> Pair:
    seen = Seen(kind, name, Place("a.py", 3, "f"), (1,), torch.float32, np.ones(1))
    return Pair(seen, seen, difference, rounding, size)


def compared(*pairs: Pair, first: Pair | None = None) -> Compared:
    return Compared(pairs, first, None, (), 10.0, equal=False)


def drawn(found: Compared) -> Chart:
    made = chart("other", found)
    assert made is not None
    return made


def test_each_way_that_is_not_equal_has_a_chart_after_the_entries(numbers: Numbers) -> None:
    blocks = numbers.document().blocks
    titles = [block.title[0].text.partition(":")[0] for block in blocks if isinstance(block, Chart)]
    assert titles == ["float64", "Scaled"]
    assert [type(block).__name__ for block in blocks] == ["Entries", "Chart", "Chart", "Prose"]


def test_the_mark_is_at_the_first_value_beyond_its_bound(numbers: Numbers) -> None:
    found = numbers["Scaled"].found
    assert found is not None
    block = drawn(found)
    beyond = [at for at, (value, bound) in enumerate(zip(block.values, block.bounds, strict=True)) if value > bound]
    assert block.mark is not None
    assert block.mark[0] == beyond[0]
    assert found.first is not None
    assert [span.text for span in block.mark[1]][1] == found.first.seen.name


def test_figures_are_relative_to_the_elements_and_equal_arguments_are_left_out() -> None:
    block = drawn(compared(pair("given", "w", 0.0), pair("operator", "mm", 2e-6, size=4.0), pair("result", "1", 0.0)))
    assert list(block.values) == [5e-7, 0.0]
    assert list(block.bounds) == [2.5e-7, 1e-6]
    assert block.sections == ((0, "forward"), (1, "results"))


def test_what_cannot_be_compared_is_beyond_its_bound_whatever_its_size() -> None:
    bad = pair("operator", "mm", math.inf, size=0.0, rounding=0.0)
    block = drawn(compared(bad, first=bad))
    assert list(block.values) == [math.inf]
    assert block.bounds[0] < math.inf
    assert "first: mm" in str(Numbers((Row("other", compared(bad, first=bad), "different", ""),), 1))


def test_a_way_whose_operators_were_not_compared_has_no_chart() -> None:
    assert chart("other", compared(pair("result", "1", 1.0))) is None


def test_json_has_the_run_as_2000_tensors_at_most_and_the_largest_difference_among_them() -> None:
    pairs = [pair("operator", f"op{at}", 1e-3 if at == 3333 else 1e-7) for at in range(5000)]
    (way,) = json.loads(Numbers((Row("other", compared(*pairs), "rounding", ""),), 5000).to_json())["ways"]
    assert len(way["run"]) == 2000
    (found,) = (each for each in way["run"] if each["name"] == "op3333")
    assert found == {
        "kind": "operator",
        "name": "op3333",
        "file": "a.py",
        "line": 3,
        "function": "f",
        "backward": False,
        "relative_difference": 1e-3,
        "bound": 1e-6,
    }
