"""The session of a recording, driven by marks made by hand: phases, plain step times, ends and failures."""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from profiles import examples
from recording.recorders import Driven, Logging

from unstall.errors import UsageError
from unstall.guest import active
from unstall.guest.steps import proving
from unstall.recording.session import Phase


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    yield
    recording = active.current()
    if recording is not None:
        recording.end("exit")


def test_five_steps_are_recorded_after_warm_up_plain_steps_and_one_to_settle(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=5)
    run.steps(3 + 5, took_ms=100)
    assert (run.session.phase, run.log) == (Phase.RECORDING, ["own start"])
    run.steps(5, took_ms=150)
    assert run.log == ["own start"]
    run.steps(1, took_ms=150)
    assert run.log == ["own start", "own stop"]
    (recorded,) = run.events("recorded")
    assert (recorded["steps"], recorded["settling"], recorded["by"]) == (5, 1, "explicit")
    marks = run.events("mark")
    assert [mark["step"] for mark in marks] == [0, 1, 2, 3, 4, 5, 6]
    assert [mark["at"] for mark in marks[:3]] == [800_000_000, 950_000_000, 1_100_000_000]


def test_the_plain_steps_follow_the_recorded_ones(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=2)
    run.steps(3 + 3 + 3, took_ms=100)
    assert (run.session.phase, run.log) == (Phase.PLAIN_AFTER, ["own start", "own stop"])
    run.steps(1 + 3, took_ms=110)
    assert [plain["host_ns"] for plain in run.events("plain")] == [100e6, 110e6]
    assert run.events("over")[0]["why"] == "done"


def test_a_loop_ends_its_last_step(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=5)
    warm_up = 50 + 3 + 1  # as it may be training
    run.steps(warm_up + 5 + 3, took_ms=100, kind="loader")
    run.clock.ns += 60_000_000
    run.session.loop_ended("loader", 1)  # another loop
    run.session.loop_ended("loader", 0)
    ended = run.clock.ns
    run.steps(1, took_ms=900, kind="loader")
    assert [event["at"] for event in run.events("loop_end")] == [ended]
    assert [event["steps"] for event in run.events("recorded")] == []
    run.steps(1, took_ms=100, kind="loader")
    run.clock.ns += 50_000_000
    run.session.loop_ended("loader", 0)
    run.clock.ns += 700_000_000
    run.session.end("exit")
    (recorded,) = run.events("recorded")
    marks = [event["at"] for event in run.events("mark")]
    assert (recorded["steps"], recorded["settling"], len(marks)) == (4 + 1, 1, 7)
    assert marks[-1] - marks[-2] == 50_000_000


def test_the_time_between_two_loops_is_told_of_plain_steps(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=5)
    run.steps(50 + 3 + 1 + 2, took_ms=100, kind="loader")
    run.clock.ns += 100_000_000
    run.session.loop_ended("loader", 0)
    ended = run.clock.ns
    run.steps(1, took_ms=40, kind="loader")
    run.steps(4, took_ms=100, kind="loader")
    run.session.loop_ended("loader", 0)  # it is in the window by now
    run.session.end("exit")
    assert [plain["loop_ends_ns"] for plain in run.events("plain")] == [[ended]]


def test_warm_up_begins_again_after_a_step_that_proves_a_graph(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=5)
    run.steps(2, took_ms=100)
    with proving():
        run.steps(1, took_ms=900)  # the step's end lies within the proof, so the next step proves, too
    run.steps(1 + 3, took_ms=100)
    assert run.session.phase is Phase.PLAIN_BEFORE
    with proving():
        pass
    run.steps(1 + 3 + 4, took_ms=100)
    assert (run.session.phase, run.log) == (Phase.PLAIN_BEFORE, [])
    run.steps(1, took_ms=100)
    assert (run.session.phase, run.log) == (Phase.RECORDING, ["own start"])


def test_proofs_without_end_do_not_put_off_a_recording_forever(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=5)
    for _ in range(220):
        with proving():
            pass
        run.steps(1, took_ms=100)
    assert run.log[:1] == ["own start"]


def test_marks_say_which_thread_made_them(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=2)
    thread = threading.Thread(target=run.steps, args=(3 + 5 + 3, 100))
    thread.start()
    thread.join()
    assert [mark["thread"] for mark in run.events("mark")] == [thread.native_id] * 4


def test_the_plain_step_is_the_mean_of_before_and_after(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=5)
    run.session.begin()
    run.steps(8, took_ms=100)
    run.steps(6, took_ms=150)
    run.steps(1, took_ms=900)  # the first step after the recording is not counted
    run.steps(3, took_ms=104)
    assert run.session.phase is Phase.OVER
    before, after = run.events("plain")
    assert (before["which"], before["steps"], before["host_ns"], before["device_ns"]) == ("before", 5, 100e6, None)
    assert (after["which"], after["steps"], after["host_ns"]) == ("after", 3, 104e6)
    assert after["marks_ns"][-1] - after["marks_ns"][0] == 3 * 104_000_000
    assert active.current() is None


def test_steps_after_the_recording_in_which_a_graph_is_proved_are_not_plain(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=2)
    run.steps(3 + 3 + 3 + 1, took_ms=100)
    with proving():
        run.steps(1, took_ms=900)
    run.steps(2, took_ms=100)
    assert run.session.phase is Phase.OVER
    assert [plain["which"] for plain in run.events("plain")] == ["before"]


@pytest.mark.parametrize(("timed", "kept"), [(4, None), (5, 5), (9, 5), (10, 10), (39, 20)])
def test_plain_steps_that_the_programs_end_cuts_short_count_in_powers_of_two(
    tmp_path: Path, timed: int, kept: int | None
) -> None:
    """They are for a report of the program's first steps."""
    run = Driven(tmp_path, warmup=3, steps=5)
    run.session.begin()
    run.steps(3 + timed, took_ms=2)
    run.session.end("exit")
    assert [(plain["steps"], plain["host_ns"]) for plain in run.events("plain")] == ([(kept, 2e6)] if kept else [])


@pytest.mark.parametrize(
    ("took_ms", "steps"),
    [(1, 160 + 200), (2, 80 + 160), (8, 20 + 40), (100, 5), (1200, 5), (3000, 3)],
)
def test_plain_steps_are_enough_for_a_figure_and_no_more(tmp_path: Path, took_ms: float, steps: int) -> None:
    run = Driven(tmp_path, warmup=1, steps=5)
    run.steps(steps, took_ms)
    assert run.log == []
    run.steps(1, took_ms)
    assert run.log == ["own start"]


def test_warm_up_and_window_may_be_seconds(tmp_path: Path) -> None:
    run = Driven(tmp_path, after_s=10.0, for_s=2.0)
    run.steps(19, took_ms=500)
    run.steps(1 + 5, took_ms=500)
    assert run.log == ["own start"]
    run.steps(4, took_ms=500)
    assert run.log == ["own start"]
    run.steps(1, took_ms=500)
    assert run.log == ["own start", "own stop"]


def test_a_step_that_settles_for_longer_than_the_window_leaves_all_of_it(tmp_path: Path) -> None:
    run = Driven(tmp_path, after_s=0.0, for_s=1.0)
    run.steps(1 + 5, took_ms=500)
    run.steps(1, took_ms=3000)
    run.steps(2, took_ms=500)
    (recorded,) = run.events("recorded")
    assert (recorded["steps"], recorded["settling"]) == (2, 1)


def test_the_line_clock_runs_around_the_recorder(tmp_path: Path) -> None:
    log: list[str] = []
    run = Driven(tmp_path, Logging(log, "device"), Logging(log, "lines"), warmup=1, steps=1)
    run.steps(1 + 3 + 2, took_ms=100)
    assert log == ["lines start", "device start", "lines flush", "device stop", "lines stop"]
    assert [event["of"] for event in run.events("facts")] == ["device", "lines"]


class _Describing(Logging):
    """A line clock that takes 3 ms to describe what is new."""

    def flush(self) -> None:
        super().flush()
        self.run.clock.ns += 3_000_000

    run: Driven


def test_what_the_settling_step_showed_is_described_before_the_first_step_that_counts(tmp_path: Path) -> None:
    log: list[str] = []
    lines = _Describing(log, "lines")
    lines.run = run = Driven(tmp_path, Logging(log, "device"), lines, warmup=1, steps=3)
    run.steps(1 + 3 + 1 + 3, took_ms=100)
    assert log.count("lines flush") == 1
    at = [mark["at"] for mark in run.events("mark")]
    assert [end - start for start, end in itertools.pairwise(at)] == [103_000_000, *[100_000_000] * 3]


def test_lines_that_cannot_be_described_now_do_not_end_the_session(tmp_path: Path) -> None:
    class FullDisk(Logging):
        def flush(self) -> None:
            raise OSError("no space left on device")

    run = Driven(tmp_path, Logging([], "device"), FullDisk([], "lines"), warmup=1, steps=1)
    run.steps(50, took_ms=100)
    assert run.events("failed") == []
    assert [event["steps"] for event in run.events("recorded")] == [1]


def test_a_recorder_that_cannot_start_ends_the_session_and_nothing_else(tmp_path: Path) -> None:
    log: list[str] = []
    run = Driven(tmp_path, Logging(log, "device", broken="start"), Logging(log, "lines"), warmup=1, steps=1)
    run.session.begin()
    run.steps(50, took_ms=100)
    assert log == ["lines start", "device start", "lines stop"]
    assert [event["why"] for event in run.events("failed")] == ["RuntimeError: cannot start"]
    assert run.session.phase is Phase.OVER
    assert active.current() is None


def test_a_recorder_that_cannot_stop_leaves_the_line_clock_stopped(tmp_path: Path) -> None:
    log: list[str] = []
    run = Driven(tmp_path, Logging(log, "device", broken="stop"), Logging(log, "lines"), warmup=1, steps=1)
    run.steps(50, took_ms=100)
    assert log == ["lines start", "device start", "lines flush", "device stop", "lines stop"]
    assert [event["why"] for event in run.events("failed")] == ["RuntimeError: cannot stop"]


def test_a_full_disk_ends_the_session_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").symlink_to("/dev/full")
    run = Driven(tmp_path, warmup=1, steps=1)
    run.session.begin()
    run.steps(50, took_ms=100)
    assert run.session.phase is Phase.OVER
    assert run.log == []
    assert active.current() is None


def test_marks_that_a_recorder_itself_causes_are_no_steps(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=1, steps=2)
    run.recorder.on_start = lambda: run.session.step_boundary("explicit", 0)
    run.steps(1 + 3, took_ms=100)
    assert [mark["step"] for mark in run.events("mark")] == [0]


def test_an_end_in_the_window_keeps_the_whole_steps(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=1, steps=9)
    run.session.begin()
    run.steps(1 + 9 + 4, took_ms=100)
    run.session.end("exit")
    assert run.log == ["own start", "own stop"]
    assert [(event["steps"], event["settling"], event["why"]) for event in run.events("recorded")] == [(3, 1, "exit")]
    assert [plain["host_ns"] for plain in run.events("plain")] == [100e6]
    assert [(event["why"], event["phase"]) for event in run.events("over")] == [("exit", "plain_after")]


class _OfItsThread(Logging):
    """Begins and ends on one thread, and takes its time for both."""

    def start(self) -> None:
        super().start()
        self._thread = threading.get_ident()
        time.sleep(0.1)

    def stop(self) -> None:
        assert threading.get_ident() == self._thread
        self.log.append("own writes")
        time.sleep(1.2)  # longer than an end waits for a boundary
        super().stop()


@pytest.mark.parametrize(
    ("begun", "steps", "why"),
    [("own start", 10**6, "exit"), ("mark", 10**6, "exit"), ("own writes", 2, "done")],
)
def test_an_end_by_another_thread_waits_for_a_window_that_begins_and_for_what_is_written(
    tmp_path: Path, begun: str, steps: int, why: str
) -> None:
    run = Driven(tmp_path, _OfItsThread([], any_thread=False), warmup=1, steps=steps)

    def train() -> None:
        while run.session.phase is not Phase.OVER:
            run.steps(1, took_ms=100)
            time.sleep(0.001)

    run.session.begin()
    thread = threading.Thread(target=train)
    thread.start()
    while begun not in (*run.log, *(event["event"] for event in run.events("mark"))):
        time.sleep(0.001)
    run.session.end("exit")
    assert [event["why"] for event in run.events("recorded")] == [why]
    assert run.events("failed") == []
    thread.join()


def test_an_end_in_warm_up_says_how_far_it_was(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3)
    run.session.begin()
    run.steps(2, took_ms=100)
    run.session.end("exit")
    assert [(event["phase"], event["steps"]) for event in run.events("over")] == [("warmup", 2)]
    assert run.events("recorded") == []


def test_one_process_has_one_recording(tmp_path: Path) -> None:
    run, other = Driven(tmp_path), Driven(tmp_path)
    run.session.begin()
    with pytest.raises(UsageError, match="under way"):
        other.session.begin()
    run.session.end("done")
    other.session.begin()
    assert active.current() is other.session


def test_without_marks_a_time_is_recorded(tmp_path: Path) -> None:
    run = Driven(tmp_path)
    assert run.session.start_by_time()
    assert run.log == ["own start"]
    run.session.stop_by_time()
    assert run.log == ["own start", "own stop"]
    assert [(event["by"], event["steps"]) for event in run.events("recorded")] == [("time", 0)]
    assert run.events("plain") == []


def test_the_machine_is_told_again_at_the_end_since_torch_may_not_have_been_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Driven(tmp_path)
    run.session.start_by_time()
    monkeypatch.setattr("unstall.guest.device.machine", lambda: {"devices": [{"name": "H200"}]})
    run.session.stop_by_time()
    assert [event["facts"]["devices"] for event in run.events("machine")] == [[], [{"name": "H200"}]]


def test_a_time_is_not_recorded_where_marks_have_come(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3)
    run.steps(1, took_ms=100)
    assert not run.session.start_by_time()
    assert run.log == []


def test_a_recorder_of_the_programs_own_thread_waits_for_a_step(tmp_path: Path) -> None:
    log: list[str] = []
    run = Driven(tmp_path, Logging(log, any_thread=False), warmup=1, steps=1)
    assert not run.session.start_by_time()
    assert "unstall.step()" in run.events("waiting")[0]["why"]
    run.steps(1 + 3, took_ms=100)
    assert log == ["own start"]


def test_the_rarer_optimizer_that_comes_late_starts_warm_up_anew(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=3, steps=5)
    run.steps(5, took_ms=100, kind="optimizer", who=1)
    assert [event["phase"] for event in run.events("phase")] == ["plain_before"]
    run.steps(1, took_ms=100, kind="optimizer", who=2)
    for _ in range(2 + 5 + 6):
        run.steps(5, took_ms=100, kind="optimizer", who=1)
        run.steps(1, took_ms=100, kind="optimizer", who=2)
    assert run.log == ["own start", "own stop"]
    assert run.events("recorded")[0]["steps"] == 5
    marks = run.events("mark")
    assert marks[3]["at"] - marks[2]["at"] == 600_000_000
    assert run.events("plain")[0]["host_ns"] == 600e6


def test_a_window_whose_steps_never_end_is_closed_when_others_went_on(tmp_path: Path) -> None:
    run = Driven(tmp_path, warmup=1, steps=5)
    run.steps(1 + 5 + 3, took_ms=100, kind="optimizer", who=1)
    assert run.log == ["own start"]
    run.steps(1000, took_ms=1, kind="optimizer", who=2)
    assert run.log == ["own start", "own stop"]
    assert run.events("recorded")[0]["steps"] == 2


_LOOPS = st.lists(  # loops of a program, one after another: what marks in one turn, how long it takes, how many turns
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from(["explicit", "optimizer", "loader", "forward"]), st.integers(0, 2)),
            min_size=1,
            max_size=4,
        ),
        st.sampled_from([1, 40, 400, 3000]),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=3,
)


@given(loops=_LOOPS, warmup=st.integers(0, 4), steps=st.integers(1, 6), broken=st.sampled_from(["", "start", "stop"]))
@example(loops=[([("explicit", 0)], 40, 1)], warmup=4, steps=6, broken="")  # ends in warmup
@example(loops=[([("explicit", 0)], 40, 4)], warmup=1, steps=6, broken="")  # ends as it is recorded
@example(loops=[([("explicit", 0)], 100, 40)], warmup=1, steps=2, broken="")  # goes on for long after it
@examples(60)
def _check_that_a_recorder_starts_and_stops_once(
    folder: Path,
    reached: set[str],
    loops: list[tuple[list[tuple[str, int]], int, int]],
    warmup: int,
    steps: int,
    broken: str,
) -> None:
    log: list[str] = []
    run = Driven(Path(tempfile.mkdtemp(dir=folder)), Logging(log, broken=broken), warmup=warmup, steps=steps)
    run.session.begin()
    for turn, took_ms, turns in loops:
        for kind, who in turn * turns:
            run.steps(1, took_ms, kind, who)
    run.session.end("exit")
    assert (run.session.phase, active.current()) == (Phase.OVER, None)
    assert log in ([], ["own start"] if broken == "start" else ["own start", "own stop"])
    (over,) = run.events("over")
    reached.add(over["phase"])
    borders = [mark["step"] for mark in run.events("mark")]
    assert borders == list(range(len(borders)))
    assert len({mark["kind"] for mark in run.events("mark")}) <= 1
    for recorded in run.events("recorded"):
        assert recorded["steps"] == max(0, len(borders) - 2) <= steps


def test_whatever_marks_come_a_recorder_starts_and_stops_once(tmp_path: Path) -> None:
    reached: set[str] = set()
    _check_that_a_recorder_starts_and_stops_once(tmp_path, reached)
    assert reached >= {"warmup", "recording", "plain_after"}
