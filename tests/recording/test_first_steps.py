"""The first steps are recorded in case the program ends before the recording proper begins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from recording.recorders import Begun, Logging

from unstall.cli._recording import why_nothing
from unstall.cupti.trial import FIRST_STEPS
from unstall.guest import active
from unstall.recording.first_steps import (
    recorded_beginnings,
    steps_among,
)
from unstall.recording.journal import Journal, read
from unstall.recording.session import Phase
from unstall.recording.settings import Settings


@pytest.fixture(autouse=True)
def _ended() -> object:
    yield
    recording = active.current()
    if recording is not None:
        recording.end("exit")


@pytest.mark.parametrize("steps", range(1, 9))
@pytest.mark.parametrize("kind", ["explicit", "optimizer", "loader", "forward"])
def test_a_program_of_a_few_steps_leaves_them(tmp_path: Path, kind: str, steps: int) -> None:
    run = Begun(tmp_path)
    run.steps(steps, took_ms=100, kind=kind)
    run.clock.ns += 100_000_000
    run.session.end("exit")
    assert run.log == ["first start", "first stop"]
    assert run.events("window") == []
    (recorded,) = run.of_first("recorded")
    assert recorded["by"] == kind
    assert recorded["steps"] >= 1
    assert len(run.of_first("mark")) == recorded["steps"] + recorded["settling"] + 1
    assert recorded_beginnings(tmp_path) == [tmp_path / FIRST_STEPS]


def test_the_last_step_is_whole_if_the_loop_ends(tmp_path: Path) -> None:
    run = Begun(tmp_path)
    run.steps(4, took_ms=100, kind="loader")
    run.clock.ns += 100_000_000
    run.session.loop_ended("loader", 0)
    run.clock.ns += 900_000_000
    run.session.end("exit")
    marks = [event["at"] for event in run.of_first("mark")]
    assert [after - before for before, after in pairwise(marks)] == [100_000_000] * 4
    (recorded,) = run.of_first("recorded")
    assert recorded["steps"] + recorded["settling"] == 4


def test_a_program_without_steps_leaves_all_of_it(tmp_path: Path) -> None:
    run = Begun(tmp_path)
    run.session.end("exit")
    assert [(event["by"], event["steps"]) for event in run.of_first("recorded")] == [("block", 0)]


def test_the_first_steps_end_before_plain_steps_are_timed_and_the_recording_is_as_ever(tmp_path: Path) -> None:
    run = Begun(tmp_path, warmup=3, steps=5)
    run.steps(9, took_ms=100)
    assert (run.session.phase, run.log) == (Phase.WARMUP, ["first start", "first stop"])
    assert [(event["steps"], event["settling"]) for event in run.of_first("recorded")] == [(6, 2)]
    run.steps(1 + 5 + 6 + 4, took_ms=100)
    assert run.log == ["first start", "first stop", "own start", "own stop"]
    assert [plain["host_ns"] for plain in run.events("plain")] == [100e6, 100e6]
    assert [event["steps"] for event in run.events("recorded")] == [5]


def test_a_program_that_ends_while_plain_steps_are_timed_leaves_the_first_steps(tmp_path: Path) -> None:
    run = Begun(tmp_path)
    Journal(tmp_path).write("armed")
    run.steps(12, took_ms=1)
    run.session.end("exit")
    missing = why_nothing(read(tmp_path), Settings(str(tmp_path)), succeeded=True)
    assert missing is not None
    assert missing.startswith("the program ended after 12 steps, while steps ")
    assert recorded_beginnings(tmp_path) == [tmp_path / FIRST_STEPS]


def test_a_large_warm_up_does_not_prolong_the_first_steps(tmp_path: Path) -> None:
    run = Begun(tmp_path, warmup=100)
    run.steps(9, took_ms=1)
    assert run.log == ["first start", "first stop"]


def test_long_steps_end_them_early(tmp_path: Path) -> None:
    run = Begun(tmp_path)
    run.steps(2, took_ms=40_000)
    assert run.log == ["first start", "first stop"]


def test_the_clock_of_one_of_several_ranks_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = Begun(tmp_path)
    run.steps(8, took_ms=40_000)
    assert run.log == ["first start"]
    run.steps(1, took_ms=40_000)
    assert run.log == ["first start", "first stop"]


@pytest.mark.parametrize("micro_batches", [2, 9, 40])
def test_micro_batches_are_no_steps(tmp_path: Path, micro_batches: int) -> None:
    run = Begun(tmp_path, warmup=3, steps=5)
    run.train(8, micro_batches)
    assert run.log == ["first start"]
    run.train(1, micro_batches)
    assert [(event["by"], event["steps"], event["settling"]) for event in run.of_first("recorded")] == [
        ("optimizer", 6, 2)
    ]


def test_a_journal_of_first_steps_that_never_began_is_closed(tmp_path: Path) -> None:
    run = Begun(tmp_path, Logging([], "first", any_thread=False))
    first = run.session._first_steps
    assert first is not None
    run.session.end("exit")
    assert first._journal is not None
    first._journal.write("late")
    assert run.of_first("late") == []


class _OfItsThread(Logging):
    def start(self) -> None:
        super().start()
        self._thread = threading.get_ident()

    def stop(self) -> None:
        assert threading.get_ident() == self._thread
        super().stop()


@pytest.mark.parametrize("ends", ["end", "profiler"])
def test_first_steps_of_one_thread_are_ended_by_that_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    run = Begun(tmp_path, _OfItsThread([], "first", any_thread=False), warmup=3, steps=50)
    in_use = SimpleNamespace(cuda=lambda: True, wait_to_leave=lambda: None)
    monkeypatch.setattr("unstall.recording.first_steps.device", in_use)
    begun, over = threading.Event(), threading.Event()

    def train() -> None:
        for _ in range(10_000):
            run.steps(1, took_ms=1)
            begun.set()
            if over.wait(0.001):
                return

    thread = threading.Thread(target=train)
    thread.start()
    assert begun.wait(60)
    if ends == "end":
        run.session.end("exit")
    else:
        run.session._give_way()
    over.set()
    thread.join()
    assert run.first.log == ["first start", "first stop"]
    assert (run.of_first("failed"), run.session.phase is Phase.OVER) == ([], ends == "end")


def test_the_programs_own_profiler_ends_them(tmp_path: Path) -> None:
    run = Begun(tmp_path)
    run.steps(2, took_ms=1)
    run.session._give_way()
    assert run.log == ["first start", "first stop"]


def test_a_recording_by_time_ends_them_first(tmp_path: Path) -> None:
    run = Begun(tmp_path)
    assert run.session.start_by_time()
    assert run.log == ["first start", "first stop", "own start"]


def test_a_recording_by_time_that_is_due_as_cuda_is_initialised_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[Callable[[], None]] = []
    monkeypatch.setattr("unstall.recording.by_time.start_thread", threads.append)
    run = Begun(tmp_path, after_s=0, for_s=0)
    assert run.log == ["own start"]
    for act in threads:
        act()
    assert run.log == ["own start", "own stop"]
    assert [(event["by"], event["steps"]) for event in run.events("recorded")] == [("time", 0)]


def test_one_that_is_due_later_leaves_the_beginning_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Callable[[], None]] = []
    monkeypatch.setattr("unstall.recording.by_time.start_thread", threads.append)
    run = Begun(tmp_path, after_s=1, for_s=0)
    assert run.log == ["first start"]
    run.clock.ns += 2_000_000_000
    for act in threads:
        act()
    assert run.log == ["first start", "first stop", "own start", "own stop"]


def test_a_recorder_of_the_programs_thread_begins_at_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Begun(tmp_path, Logging([], "first", any_thread=False))
    assert run.first.log == []
    in_use = SimpleNamespace(cuda=lambda: True, wait_to_leave=lambda: None)
    monkeypatch.setattr("unstall.recording.first_steps.device", in_use)
    run.steps(1, took_ms=1)
    assert run.first.log == ["first start"]
    run.session.end("exit")
    assert run.first.log == ["first start", "first stop"]


@pytest.mark.parametrize("broken", ["start", "stop"])
def test_what_fails_leaves_the_recording_as_it_would_be(tmp_path: Path, broken: str) -> None:
    run = Begun(tmp_path, Logging([], "first", broken=broken))
    run.steps(9 + 1 + 5 + 6 + 4, took_ms=100)
    assert run.log == ["own start", "own stop"]
    assert run.events("failed") == []
    assert [event["why"] for event in run.of_first("failed")] == [f"RuntimeError: cannot {broken}"]


@pytest.mark.parametrize(
    ("kind", "times", "ended", "expected"),
    [
        ("explicit", [5], 9, ([1, 5], 0)),
        ("explicit", [5, 6], 9, ([5, 6], 0)),
        ("explicit", [5, 6, 7], 9, ([5, 6, 7], 0)),
        ("optimizer", [5, 6, 7, 8], 9, ([5, 6, 7, 8], 2)),
        ("forward", [5], 9, ([5, 9], 0)),
        ("loader", [5, 6, 7, 8], 9, ([5, 6, 7, 8], 0)),
        ("loader", [5, 6, 7, 8, 9], 10, ([5, 6, 7, 8, 9], 3)),
        ("loader", [5, 6, 7], None, ([5, 6, 7], 0)),
    ],
)
def test_setting_up_and_warming_up_count_only_if_there_is_nothing_else(
    kind: str, times: list[int], ended: int | None, expected: tuple[list[int], int]
) -> None:
    assert steps_among(kind, times, 1, ended, 3) == expected
