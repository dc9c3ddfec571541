"""Which of a program's marks are its steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unstall.guest.step_source import StepSource, StepSources, step_spans

TRAIN, VALIDATE = StepSource("loader", 1), StepSource("loader", 2)
A, B = StepSource("optimizer", 1), StepSource("optimizer", 2)
EXPLICIT, MODEL = StepSource("explicit", 0), StepSource("forward", 9)


def _told(*sources: StepSource, may_train: bool = False) -> StepSources:
    tally = StepSources()
    for source in sources:
        tally.add(source, may_train=may_train)
    return tally


@given(critic=st.integers(2, 300), cycles=st.integers(1, 20))
def test_of_two_optimizers_the_one_that_steps_less_often_leads(critic: int, cycles: int) -> None:
    assert _told(*([A] * critic + [B]) * cycles).leader() == B
    assert _told(*([B] + [A] * critic) * cycles).leader() == B


@given(optimizers=st.integers(1, 40), cycles=st.integers(1, 5))
def test_of_optimizers_that_take_turns_the_last_of_a_turn_leads(optimizers: int, cycles: int) -> None:
    turn = [StepSource("optimizer", number) for number in range(optimizers)]
    assert _told(*turn * cycles).leader(turn[-1]) == turn[-1]


@given(first=st.integers(2, 300), second=st.integers(1, 300))
def test_of_optimizers_one_after_the_other_the_longest_loop_led(first: int, second: int) -> None:
    assert _told(*[A] * first, *[B] * second).leader_in_hindsight() == (A if first > second else B)


@given(critic=st.integers(2, 30), cycles=st.integers(2, 20), before=st.integers(0, 99))
def test_in_hindsight_too_optimizers_that_take_turns_are_one_loop(critic: int, cycles: int, before: int) -> None:
    assert _told(*[A] * before, *([A] * critic + [B]) * cycles).leader_in_hindsight() == B


def test_explicit_steps_lead_over_all_and_for_good() -> None:
    tally = _told(A, A, EXPLICIT, *[A] * 5000)
    assert tally.leader() == EXPLICIT
    assert not tally.silent(EXPLICIT)


def test_a_loader_under_autograd_is_a_part_of_training() -> None:
    assert _told(*[TRAIN, A] * 100, may_train=True).count(TRAIN) == 0
    assert _told(*[TRAIN, A] * 100, may_train=True).leader() == A


def test_fifty_batches_without_an_optimizer_are_no_training() -> None:
    assert _told(*[TRAIN] * 50, may_train=True).leader() is None
    assert _told(*[TRAIN] * 51, may_train=True).leader() == TRAIN


def test_a_loader_counts_at_once_where_autograd_is_off() -> None:
    assert _told(VALIDATE).leader() == VALIDATE
    assert _told(VALIDATE, VALIDATE, A).leader() == A


def test_an_optimizer_that_stepped_once_gives_way_in_the_end() -> None:
    assert _told(A, *[VALIDATE] * 400).leader() == A
    assert _told(A, *[VALIDATE] * 401).leader() == VALIDATE


def test_a_generators_tokens_are_its_steps_not_its_prompts() -> None:
    assert _told(TRAIN, *[MODEL] * 100).leader() == TRAIN
    assert _told(TRAIN, *[MODEL] * 101).leader() == MODEL


def test_the_model_that_is_called_most_often_leads() -> None:
    encoder = StepSource("forward", 1)
    assert _told(encoder, *[MODEL] * 30, encoder, *[MODEL] * 30).leader() == MODEL


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 5))
def test_a_loop_ends_its_last_step_unless_all_loops_are_short(lengths: list[int], gap: int) -> None:
    boundaries: list[int] = []
    ends, now = [], 0
    for length in lengths:
        boundaries += range(now, now + 10 * length, 10)
        now += 10 * length
        ends.append(now)
        now += gap
    spans = step_spans(boundaries, ends)
    assert [start for start, _ in spans] == boundaries
    assert spans[-1][1] == ends[-1]
    repeats = max(lengths) < 3 and max(lengths) < len(lengths)
    whole = ends[-1] - boundaries[0]
    assert sum(end - start for start, end in spans) == (whole if repeats else 10 * sum(lengths))


def test_the_last_boundary_begins_no_step_if_no_loop_ends() -> None:
    assert step_spans([10, 20, 30], []) == [(10, 20), (20, 30)]
    assert step_spans([10, 20, 30], [5, 30]) == [(10, 20), (20, 30)]
    assert step_spans([10, 20, 30], [20, 35]) == [(10, 20), (20, 30), (30, 35)]
    assert step_spans([10], []) == step_spans([], [10]) == []
