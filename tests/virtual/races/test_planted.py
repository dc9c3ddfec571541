"""Planted races and correct programs: what the engine finds, and what is found as on a real GPU."""

from __future__ import annotations

import pytest
from virtual.races.running import CORRECT, PLANTED, correct, lines, planted

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

KINDS = {
    "batches_not_recorded": "Race: freed memory is reused while another stream still uses it",
    "event_too_early": "Race: read before the write has finished",
    "freed_early": "Race: freed memory is reused while another stream still uses it",
    "graph_input": "Race: overwritten before the read has finished",
    "host_reads_early": "Race: read before the write has finished",
    "losses_read_early": "Race: read before the write has finished",
    "overwritten_input": "Race: overwritten before the read has finished",
    "pinned_refilled": "Race: overwritten before the read has finished",
    "slice_too_early": "Race: read before the write has finished",
    "sum_too_early": "Race: read before the write has finished",
    "written_twice": "Race: written twice, in no order",
}


@pytest.mark.parametrize("program", PLANTED)
def test_the_engine_finds_the_planted_race_alone_with_both_lines(program: str) -> None:
    assert planted(program).virtual == [(*lines(program), KINDS[program])]


@pytest.mark.parametrize("program", PLANTED)
def test_it_is_found_as_on_a_real_gpu_with_both_lines(program: str) -> None:
    assert planted(program).real == [(*lines(program), KINDS[program])]


@pytest.mark.parametrize("program", CORRECT)
def test_a_correct_program_has_no_race_either_way(program: str) -> None:
    found = correct(program)

    assert (found.virtual, found.real, found.failed) == ([], [], "")


@pytest.mark.parametrize(
    ("program", "count"), [("losses_read_early", 12), ("overwritten_input", 12), ("pinned_refilled", 11)]
)
def test_the_races_of_one_pair_of_lines_are_one_and_counted(program: str, count: int) -> None:
    assert planted(program).counts == [count]
