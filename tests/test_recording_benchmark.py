"""`benchmarks/recording*.py`: what they make of steps' times, and show of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from benchmarks import recording, recording_over
from benchmarks.recording_undistorted import kept_speed, shown, steps_told, summary
from unstall.record.host_only import TIMES

_MS = 1_000_000
_EVENTS: list[dict[str, Any]] = [
    {"event": "machine", "at": 1000 * _MS},
    {"event": "window", "at": 1250 * _MS},
    *({"event": "mark", "at": at * _MS} for at in (1300, 1330, 1350, 1372)),
    {"event": "host_only", "at": 0, "marks_ns": [each * _MS for each in (1380, 1405, 1425)], "lost": 0},
    {"event": "plain", "at": 0, "which": "before", "marks_ns": [each * _MS for each in (900, 910, 922, 936)]},
    {"event": "plain", "at": 0, "which": "after", "marks_ns": [1400 * _MS, 1420 * _MS]},
]


def test_steps_of_a_window_are_told_one_by_one_with_the_settling_one_first() -> None:
    told = steps_told(_EVENTS)
    assert (told["window_ms"], told["start_ms"]) == ([30.0, 20.0, 22.0], 250.0)


def test_steps_timed_without_recording_have_a_spread_where_there_is_more_than_one() -> None:
    timed = steps_told(_EVENTS)["timed_ms"]
    assert list(timed) == ["before"]
    assert timed["before"] == {"median": 12.0, "q1": 11.0, "q3": 13.0, "most": 14.0}


def test_a_row_shows_how_far_off_it_is_what_it_took_out_and_its_steps() -> None:
    row: dict[str, Any] = {
        "plain_ns": 10 * _MS,
        "recorded_ns": 21 * _MS,
        "undistorted_ns": 14 * _MS,
        "error": 0.4,
        "taken_out": 1.5,
    }
    row |= {"by": "host-only steps", "usual_error": -0.02}
    text = shown({**row, **steps_told(_EVENTS)})
    assert text.splitlines() == [
        "plain 10.00, recorded 21.00, undistorted 14.00 ms by host-only steps (+40.0%), by the usual cost -2.0%,"
        " taken out 1.500x",
        "    steps 20.00 22.00, settling 30.00 ms; timed before 12.00 (11.00 to 13.00) ms;"
        " the recorder started in 250 ms",
        "    of the host alone 20.00, settling 25.00 ms",
    ]


def test_a_row_without_a_plain_step_has_no_error_to_show() -> None:
    row: dict[str, Any] = {
        "plain_ns": None,
        "recorded_ns": 21 * _MS,
        "undistorted_ns": None,
        "error": None,
        "taken_out": None,
    }
    row |= {"by": None, "usual_error": None}
    assert shown({**row, **steps_told([])}) == "plain ?, recorded 21.00, undistorted ? ms"


def _row(error: float, before: float = 10.0, after: float = 10.0, alone: float = 10.0, spread: float = 0.02) -> Any:
    """A recording of steps that long, in ms, each with that spread; the first of the host alone settles."""
    timed = {
        which: {"median": each, "q1": each * (1 - spread), "q3": each * (1 + spread)}
        for which, each in (("before", before), ("after", after))
    }
    of_host = [30.0, *(alone * (1 + sign * 2 * spread) for sign in (-1, -0.5, 0, 0.5, 1))]
    return {"error": error, "timed_ms": timed, "host_only_ms": of_host}


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (_row(0.0), True),
        (_row(0.0, alone=15.0), True),
        (_row(0.0, after=10.4), True),
        (_row(0.0, after=10.6), False),
        (_row(0.0, spread=0.12), False),
        ({**_row(0.0), "host_only_ms": []}, True),
        ({**_row(0.0), "host_only_ms": [30.0, 5.0, 5.0, 10.0, 15.0, 15.0]}, False),
        ({**_row(0.0), "timed_ms": {}}, False),
    ],
)
def test_a_host_kept_its_speed_by_the_steps_that_nothing_slows_down(row: Any, kept: bool) -> None:
    assert kept_speed(row) is kept


def test_recordings_are_summed_up_by_those_in_which_the_host_kept_its_speed() -> None:
    rows = [_row(0.01), _row(-0.04), _row(0.3, after=13.0), {**_row(0.0), "error": None}]
    assert summary(rows, "cupti") == (
        "cupti: 3 of 4 recordings tell a step time, off by up to 30.0%; in 2 the host kept its speed:"
        " off by up to 4.0%, 2.5% in the median"
    )
    assert summary(rows[2:], "torch") == "torch: 1 of 2 recordings tell a step time, off by up to 30.0%"
    assert summary([], "torch") == "torch: 0 of 0 recordings tell a step time"


class _Host:
    """Whose steps take ever less time by a hundredth, and so many times as long while something records."""

    def __init__(self) -> None:
        self.took, self.times = 1.0, 1.0

    def time_steps(self, steps: int = 5, settling: int = 1) -> float:
        self.took *= 0.99
        return self.took * self.times

    def records(self, times: float) -> recording.Way:
        @contextmanager
        def way() -> Iterator[None]:
            self.times = times
            yield
            self.times = 1.0

        return way


def test_what_recording_costs_is_told_by_the_steps_before_and_behind() -> None:
    host = _Host()
    ways = [("dear", host.records(1.5)), ("cheap", host.records(1.1)), ("cheap", host.records(1.3))]
    rounds = recording.Rounds(host.time_steps, [*ways, (recording.NOTHING, host.records(1.0))])
    recording.take_turns([rounds], for_s=0)
    figures = rounds.figures()
    told = {way: cost["median"] for way, cost in figures["costs"].items()}
    assert list(told) == ["dear", "cheap", "nothing"]
    assert list(told.values()) == pytest.approx([1.5, 1.2, 1.0], rel=1e-3)
    assert figures["rounds"] == 10
    assert figures["plain_ms"]["first"] == 990


def test_a_window_costs_what_its_steps_do_in_the_mean() -> None:
    host = _Host()
    ways = [(recording.DEVICE, host.records(1.2)), *[(recording.HOST, host.records(1.01))] * TIMES]
    rounds = recording.Rounds(host.time_steps, [*ways, (recording.NOTHING, host.records(1.0))])
    recording.take_turns([rounds], for_s=0)
    told = {way: cost["median"] for way, cost in rounds.figures()["costs"].items()}
    assert list(told) == [recording.WINDOW, recording.DEVICE, recording.HOST, recording.NOTHING]
    assert list(told.values()) == pytest.approx([(1.2 + TIMES * 1.01) / (1 + TIMES), 1.2, 1.01, 1.0], rel=1e-3)
    assert "a window of cupti                        1.048 ± 0.000" in recording.shown(rounds.figures())


def test_programs_whose_figures_are_exact_make_room_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one program each round costs the same, of the other ever more, and takes a second."""
    now = 0.0
    even, uneven = _Host(), _Host()

    def dearer() -> AbstractContextManager[None]:
        nonlocal now
        now += 1
        return uneven.records(1 + now / 10)()

    monkeypatch.setattr("time.monotonic", lambda: now)
    of_even = recording.Rounds(even.time_steps, [(recording.NOTHING, even.records(1.0))])
    of_uneven = recording.Rounds(uneven.time_steps, [(recording.NOTHING, dearer)])
    recording.take_turns([of_even, of_uneven], for_s=25)
    assert (of_even.figures()["rounds"], of_uneven.figures()["rounds"]) == (10, 25)


@pytest.mark.parametrize(
    ("programs", "told"),
    [
        (((1.06, 0.03), (1.0, 0.004), (1.04, 0.01)), "1.040 ± 0.010 in the median of programs, 1.060 ± 0.030 at worst"),
        (((1.06, 0.03), (1.02, 0.004), (1.0, 0.1), (1.04, 0.003)), "1.030 ± 0.003 in the median of programs, 1.060 ±"),
        (((1.06, 0.03),), "1.060 ± 0.030 in the median of programs, 1.060 ± 0.030 at worst"),
    ],
)
def test_windows_are_summed_up_by_program(programs: tuple[tuple[float, float], ...], told: str) -> None:
    costs = [{"median": median, "error": error} for median, error in programs]
    assert recording.summary(costs).startswith(f"a window of cupti: {told}")


@pytest.mark.parametrize("slower", [1.0, 1.25])
def test_what_a_recording_leaves_behind_shows_by_a_process_that_never_records(slower: float) -> None:
    """A host that is ever faster, and two processes of which one is slower by a tenth in itself."""
    host, of_recording = _Host(), 1.1

    def record() -> None:
        nonlocal of_recording
        of_recording *= slower

    row = recording_over.over(lambda: of_recording * host.time_steps(), host.time_steps, record, for_s=0)
    assert row["rounds"] == [5, 5]
    assert row["before"]["median"] == pytest.approx(1.1, rel=1e-3)
    assert row["share"]["median"] == pytest.approx(slower, rel=1e-3)
    assert "(5 and 5 rounds)" in recording_over.shown(row)


def test_figures_of_one_thing_count_by_how_exact_they_are() -> None:
    mean = recording_over.of_all([{"median": 1.0, "error": 0.01}, {"median": 1.3, "error": 0.02}])
    assert mean == pytest.approx({"median": 1.06, "error": 0.01 * (4 / 5) ** 0.5})


def test_the_error_of_a_median_is_that_of_a_normal_distribution() -> None:
    chance = random.Random(1)
    values = [chance.gauss(1, 0.05) for _ in range(400)]
    told = recording.middle(values)
    assert told["median"] == pytest.approx(1, abs=0.01)
    assert told["error"] == pytest.approx(1.2533 * 0.05 / 20, rel=0.3)
