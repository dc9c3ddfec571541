"""The recorder torch begins only at a step: until the first, a stand-in records what the program does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recording.recorders import Begun, Logging

from unstall.cupti.trial import BEFORE_STEPS, FIRST_STEPS
from unstall.guest import active
from unstall.recording.child import first_steps_for
from unstall.recording.first_steps import recorded_beginnings, stand_in_settings_of
from unstall.recording.session import Phase
from unstall.recording.settings import RecorderName, Settings, check_choices

_STOOD_IN = ["stand-in start", "stand-in stop"]


@pytest.fixture(autouse=True)
def _cuda_is_used(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    in_use = SimpleNamespace(cuda=lambda: True, synchronize=lambda: None, wait_to_leave=lambda: None)
    monkeypatch.setattr("unstall.recording.first_steps.device", in_use)
    yield
    recording = active.current()
    if recording is not None:
        recording.end("exit")


def _torch(folder: Path, *, broken: str = "", **settings: Any) -> Begun:
    """A session whose settings ask for the recorder torch."""
    log: list[str] = []
    stand_in = Logging(log, "stand-in", broken=broken)
    return Begun(folder, Logging(log, "first", any_thread=False), stand_in, shapes=True, **settings)


def test_a_program_without_steps_leaves_what_the_stand_in_recorded(tmp_path: Path) -> None:
    run = _torch(tmp_path)
    assert run.first.log == ["stand-in start"]
    run.session.end("exit")
    assert run.first.log == _STOOD_IN
    assert recorded_beginnings(tmp_path) == [tmp_path / BEFORE_STEPS]
    assert [(event["by"], event["steps"]) for event in run.before_steps("recorded")] == [("block", 0)]


@pytest.mark.parametrize("kind", ["explicit", "optimizer", "loader", "forward"])
def test_it_ends_at_the_first_boundary_before_the_first_steps_begin(tmp_path: Path, kind: str) -> None:
    run = _torch(tmp_path)
    run.steps(1, took_ms=1, kind=kind)
    assert run.first.log == [*_STOOD_IN, "first start"]
    run.session.end("exit")
    assert run.first.log == [*_STOOD_IN, "first start", "first stop"]
    assert recorded_beginnings(tmp_path) == [tmp_path / FIRST_STEPS, tmp_path / BEFORE_STEPS]


@pytest.mark.parametrize("broken", ["", "start", "stop"])
def test_a_program_with_steps_is_recorded_as_without_a_stand_in(tmp_path: Path, broken: str) -> None:
    without, run = tmp_path / "without", tmp_path / "with"
    sessions = []
    for folder in (without, run):
        folder.mkdir()
        stands_in = folder == run
        session = (
            _torch(folder, broken=broken)
            if stands_in
            else Begun(folder, Logging([], "first", any_thread=False), shapes=True)
        )
        session.steps(9 + 1 + 5 + 6 + 4, took_ms=100)
        assert session.session.phase is Phase.OVER
        sessions.append(session)
    plain, stood_in = sessions
    assert [each for each in stood_in.first.log if "stand-in" not in each] == plain.first.log
    assert stood_in.log == plain.log == ["own start", "own stop"]
    for name in ("recorded", "mark", "plain", "failed", "over"):
        assert [_told(each) for each in stood_in.events(name)] == [_told(each) for each in plain.events(name)]
        assert [_told(each) for each in stood_in.of_first(name)] == [_told(each) for each in plain.of_first(name)]
    assert bool(stood_in.before_steps("failed")) == bool(broken)


def _told(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "at"}


def test_a_recorder_that_begins_anywhere_needs_none(tmp_path: Path) -> None:
    log: list[str] = []
    run = Begun(tmp_path, Logging(log, "first"), Logging(log, "stand-in"))
    run.steps(1, took_ms=1)
    assert log == ["first start"]
    assert not (tmp_path / BEFORE_STEPS).exists()


def test_the_programs_own_profiler_ends_it_for_good(tmp_path: Path) -> None:
    run = _torch(tmp_path)
    run.session._give_way()
    run.steps(1, took_ms=1)
    assert run.first.log == _STOOD_IN


def test_a_fork_leaves_its_files_to_the_parent(tmp_path: Path) -> None:
    run = _torch(tmp_path)
    before = (tmp_path / BEFORE_STEPS / "journal.jsonl").read_bytes()
    run.session.forked()
    run.session.end("exit")
    assert run.first.log == ["stand-in start", "stand-in forked"]
    assert (tmp_path / BEFORE_STEPS / "journal.jsonl").read_bytes() == before


def test_by_time_it_records_for_as_long_as_the_recording_would(tmp_path: Path) -> None:
    run = _torch(tmp_path)
    assert run.session.start_by_time()
    assert run.first.log == ["stand-in start"]
    run.session.stop_by_time()
    assert run.first.log == _STOOD_IN
    assert [event["why"] for event in run.events("waiting")] == [
        "recorder torch begins only at a step, and none has come: call unstall.step() at the end of each"
    ]
    run.steps(1 + 3 + 9 + 1 + 5 + 6, took_ms=100)
    assert run.log == ["own start", "own stop"]


def test_by_time_it_begins_as_cuda_is_initialised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Callable[[], None]] = []
    monkeypatch.setattr("unstall.recording.by_time.start_thread", threads.append)
    run = _torch(tmp_path, after_s=0, for_s=0)
    assert run.first.log == ["stand-in start"]
    for act in threads:
        act()
    assert run.first.log == _STOOD_IN


def test_a_time_that_is_over_ends_no_first_steps(tmp_path: Path) -> None:
    run = _torch(tmp_path)
    run.session.start_by_time()
    run.steps(1, took_ms=1)
    run.session.stop_by_time()
    assert run.first.log == [*_STOOD_IN, "first start"]


@pytest.mark.parametrize(
    ("recorder", "shapes", "stands_in"),
    [("auto", False, False), ("cupti", False, False), ("auto", True, True), ("torch", False, True)],
)
def test_cupti_stands_in_for_torch(tmp_path: Path, recorder: RecorderName, shapes: bool, stands_in: bool) -> None:
    settings = Settings(str(tmp_path), recorder, shapes=shapes)
    assert (first_steps_for(settings)._stand_in is not None) == stands_in
    within = stand_in_settings_of(settings)
    assert (within.recorder, within.by_torch) == ("cupti", False)
    check_choices(within.recorder, within.lines, shapes=within.shapes)
