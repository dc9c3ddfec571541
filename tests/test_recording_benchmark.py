"""`benchmarks/recording.py`: what it says of single steps, told from a recording's journal, and shows of a row."""

from __future__ import annotations

from typing import Any

from benchmarks.recording import shown, steps_told

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
