"""`benchmarks/recording.py`: what it says of single steps, told from a recording's journal, and shows of a row."""

from __future__ import annotations

import random
from typing import Any

import pytest

from benchmarks import recording_over
from benchmarks.recording import kept_speed, shown, steps_told, summary, windows

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


def test_windows_are_summed_up_by_program() -> None:
    assert windows([1.06, 1.0, 1.04]) == "a window of cupti: 1.040x in the median of programs, 1.060x at worst"


@pytest.mark.parametrize("slower", [1.0, 1.25])
def test_what_a_recording_leaves_behind_shows_in_the_steps_after_it(
    monkeypatch: pytest.MonkeyPatch, slower: float
) -> None:
    """A host that is faster at each step by a hundredth, which both kinds of rounds see."""
    now, took = 0.0, 1.0

    def step() -> None:
        nonlocal now, took
        now += took
        took *= 0.99

    def between(step: object, records: bool) -> None:
        nonlocal took
        took *= slower if records else 1.0

    def passed() -> float:
        return now

    monkeypatch.setattr(recording_over, "_between", between)
    monkeypatch.setattr("time.perf_counter", passed)
    row = recording_over.over(step, lambda: None, 20, for_s=60)
    assert row["rounds"] == 20
    assert row["not"]["median"] == pytest.approx(0.99**9)
    assert row["share"]["median"] == pytest.approx(slower)
    assert f"one by the other {slower:.3f} ± 0.000 (20 rounds)" in recording_over.shown(row)


def test_the_error_of_a_median_is_that_of_a_normal_distribution() -> None:
    chance = random.Random(1)
    values = [chance.gauss(1, 0.05) for _ in range(400)]
    told = recording_over.middle(values)
    assert told["median"] == pytest.approx(1, abs=0.01)
    assert told["error"] == pytest.approx(1.2533 * 0.05 / 20, rel=0.3)
