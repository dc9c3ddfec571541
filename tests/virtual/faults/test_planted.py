"""Twelve planted faults: the true line, index and bound of each, while the traceback has another line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from virtual.faults.running import line, outcome

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

# By program: the wrong value, its position, the first value that is too large, and the step if steps are known.
PLANTED = {
    "embedding": (1024, [1023], 1024, None),
    "cross_entropy": (10, [5], 10, 4),
    "gather": (63, [1, 4, 0], 50, None),
    "index_put": (4, [0], 4, None),
    "scatter": (-1, [2], 8, None),
    "multinomial": ("nan", [1, 0], None, None),
    "backward": (7, [0, 0], 4, None),
    "side_stream": (10, [1], 10, None),
    "replay": (5, [2], 5, None),
    "long_loop": (1000, [0], 1000, None),
    "loader": (3, [2], 3, 7),
    "probabilities": (pytest.approx(-2.454545), [0], None, None),
}
DOCS = Path(__file__).parents[3] / "docs" / "blame.md"


@pytest.mark.parametrize("program", PLANTED)
def test_the_only_finding_is_at_the_true_line(program: str) -> None:
    finding = outcome(program).finding

    assert (finding["rule"], finding["wrong"]) == ("device-fault", True)
    assert (finding["where"]["file"], finding["where"]["line"]) == (f"{program}.py", line(program))


@pytest.mark.parametrize("program", PLANTED)
def test_the_value_its_position_and_the_bound_are_told(program: str) -> None:
    value, position, bound, iteration = PLANTED[program]
    fault = outcome(program).fault
    wrong = fault["wrong"]

    assert (wrong["value"], wrong["position"], wrong["bound"]) == (value, position, bound)
    assert fault["iteration"] == iteration


@pytest.mark.parametrize("program", PLANTED)
def test_python_noticed_at_the_line_of_the_traceback(program: str) -> None:
    done = outcome(program)

    assert done.code == 1
    assert done.fault["ended"] is True
    assert done.fault["noticed_at"]["line"] == done.lines_of_traceback[-1]


def test_the_traceback_has_the_true_line_of_two_at_most() -> None:
    right = [program for program in PLANTED if outcome(program).lines_of_traceback[-1] == line(program)]

    assert len(right) <= 2


def test_the_documented_table_is_what_they_print() -> None:
    rows = re.findall(r"^\| `(\w+)\.py` \|.*\| (\d+) \| (\d+) \|$", DOCS.read_text(), re.MULTILINE)
    found = {
        program: (outcome(program).lines_of_traceback[-1], outcome(program).finding["where"]["line"])
        for program in PLANTED
    }

    assert {program: (int(python), int(ours)) for program, python, ours in rows} == found


def test_the_call_of_a_loop_without_steps_is_counted() -> None:
    assert outcome("long_loop").fault["call"] == 3_700


def test_the_position_is_in_the_shape_that_the_program_gave() -> None:
    """embedding flattens its indices for the kernel that checks them."""
    fault = outcome("batch_of_ids").fault

    assert (fault["wrong"]["value"], fault["wrong"]["position"]) == (250, [3, 4])
    assert [(each["name"], each["shape"]) for each in fault["inputs"]] == [("self", [100, 16]), ("index", [8, 12])]


def test_a_captured_operator_is_told_with_the_line_of_its_replay() -> None:
    assert outcome("replay").fault["replayed_at"]["line"] == line("replay", "REPLAY")


def test_a_backward_operator_is_told_with_the_call_of_backward() -> None:
    finding = outcome("backward").finding

    assert finding["fault"]["backward"] is True
    assert finding["fault"]["operator"] == "GatherBackward0"
    assert finding["where"]["called_from"]["line"] == 10


def test_a_side_stream_is_told() -> None:
    assert outcome("side_stream").fault["stream"] > 0
    assert outcome("embedding").fault["stream"] == 0
