"""`record()` and `step()`: what a `with` block is recorded as, and what is said where that cannot be."""

from __future__ import annotations

import gc
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from recording.recorders import Logging

from unstall.errors import UsageError
from unstall.guest import active, steps
from unstall.guest.steps import step
from unstall.recording import block
from unstall.recording.block import step_boundaries
from unstall.recording.in_process import Recording, record
from unstall.recording.journal import Event, read
from unstall.recording.settings import Settings


@pytest.fixture
def log() -> Iterator[list[str]]:
    yield []
    assert active.current() is None


def _recording(log: list[str], folder: Path, *, whole: bool = True, broken: str = "", steps: int = 5) -> Recording:
    settings = Settings(str(folder), warmup=0, steps=steps)
    return Recording(settings, lambda: Logging(log, broken=broken), lambda: None, whole=whole)


def _events(folder: Path, name: str) -> list[Event]:
    return [event for event in read(folder) if event["event"] == name]


def test_a_whole_block_is_recorded_from_its_first_to_its_last_instruction(tmp_path: Path, log: list[str]) -> None:
    with _recording(log, tmp_path) as recording:
        assert log == ["own start"]
    assert log == ["own start", "own stop"]
    assert [(event["by"], event["steps"]) for event in _events(tmp_path, "recorded")] == [("block", 0)]
    assert recording.close.alive


def test_steps_of_a_block_are_between_its_marks(tmp_path: Path, log: list[str]) -> None:
    with _recording(log, tmp_path) as _kept:
        for _ in range(3):
            step()
    assert [(event["by"], event["steps"]) for event in _events(tmp_path, "recorded")] == [("explicit", 3)]
    times = [event["at"] for event in _events(tmp_path, "mark")]
    assert len(times) == 4
    assert times == sorted(times)


def test_a_block_of_more_steps_than_are_kept_has_no_step_of_all_the_others(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block, "_MOST_BOUNDARIES", 3)
    data = object()
    with _recording(log, tmp_path) as _kept:
        for _ in range(10):
            steps.item_handed_on(data)
    assert [(event["by"], event["steps"]) for event in _events(tmp_path, "recorded")] == [("loader", 2)]
    assert len(_events(tmp_path, "mark")) == 3


def test_steps_of_a_block_are_those_of_the_thread_that_marks_them(tmp_path: Path, log: list[str]) -> None:
    def steps() -> None:
        for _ in range(3):
            step()

    with _recording(log, tmp_path) as _kept:
        thread = threading.Thread(target=steps)
        thread.start()
        thread.join()
    assert [event["thread"] for event in _events(tmp_path, "mark")] == [thread.native_id] * 4


def test_the_block_itself_borders_the_first_or_the_last_step() -> None:
    assert step_boundaries("optimizer", [20, 30], 10, 35) == [10, 20, 30]
    assert step_boundaries("forward", [20, 30], 10, 35) == [20, 30, 35]


def test_a_window_of_steps_is_recorded_within_a_block(tmp_path: Path, log: list[str]) -> None:
    with _recording(log, tmp_path, whole=False, steps=2) as _kept:
        assert log == []
        for _ in range(1 + 200 + 3):
            step()
        assert log == ["own start", "own stop"]
    assert [(event["by"], event["steps"]) for event in _events(tmp_path, "recorded")] == [("explicit", 2)]


def test_a_block_that_raises_is_recorded_and_raises(tmp_path: Path, log: list[str]) -> None:
    with pytest.raises(KeyError), _recording(log, tmp_path) as _kept:
        raise KeyError("lost")
    assert log == ["own start", "own stop"]
    assert [event["why"] for event in _events(tmp_path, "over")] == ["exception"]


def test_a_block_runs_though_it_cannot_be_recorded(tmp_path: Path, log: list[str]) -> None:
    ran = False
    with _recording(log, tmp_path, broken="start") as recording:
        ran = True
    assert ran
    with pytest.raises(UsageError, match="nothing was recorded: RuntimeError: cannot start"):
        recording.timeline()


def test_a_recording_within_another_is_refused(tmp_path: Path, log: list[str]) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    with _recording(log, tmp_path) as _kept:
        with pytest.raises(UsageError, match="under way"), _recording(log, inner):
            pass
        assert log == ["own start"]
    assert log == ["own start", "own stop"]


def test_a_recording_is_asked_after_its_block_and_used_once(tmp_path: Path, log: list[str]) -> None:
    recording = _recording(log, tmp_path)
    with recording, pytest.raises(UsageError, match="after its `with` block"):
        recording.explain()
    with pytest.raises(UsageError, match="one block"), recording:
        pass


def test_a_closed_recording_says_so(tmp_path: Path, log: list[str]) -> None:
    with _recording(log, tmp_path) as recording:
        pass
    recording.close()
    with pytest.raises(UsageError, match="was closed"):
        recording.save(tmp_path / "trace.json")


def test_too_few_steps_are_said_to_be(tmp_path: Path, log: list[str]) -> None:
    with _recording(log, tmp_path, whole=False) as recording:
        step()
    with pytest.raises(UsageError, match=r"the block ended before the recording began, .* warmup=0 steps .* 0.3 s"):
        recording.save(tmp_path / "trace.json")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_block_without_device_work_is_told_of_a_virtual_gpu() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with record(lines="none") as recording:
        torch.ones(3).add_(1)
    report = recording.explain()
    assert report.verdict.text.startswith("No device work was recorded")
    assert "there is no GPU here: unstall.virtual_gpu() simulates one" in report.result.integrity.notes


def test_a_recordings_files_go_with_it(log: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    closed, dropped = record(), record(steps=3)
    assert len(list(tmp_path.iterdir())) == 2
    closed.close()
    del dropped
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"warmup": -1, "steps": 3}, {"warmup": 3}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        record(**wrong)  # type: ignore[arg-type]


def test_a_step_that_nothing_records_is_nothing() -> None:
    step()
    assert active.current() is None
