"""`benchmarks/recording*.py`: what they make of steps' times, and show of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from benchmarks import recording, recording_over
from benchmarks.recording_undistorted import kept_speed, shown, steps_told, summary

_MS = 1_000_000
_EVENTS: list[dict[str, Any]] = [
    {"event": "machine", "at": 1000 * _MS},
    {"event": "window", "at": 1250 * _MS},
    *({"event": "mark", "at": at * _MS} for at in (1300, 1330, 1350, 1372)),
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
    row |= {"by": "usual cost"}
    text = shown({**row, **steps_told(_EVENTS)})
    assert text.splitlines() == [
        "plain 10.00, recorded 21.00, undistorted 14.00 ms by usual cost (+40.0%), taken out 1.500x",
        "    steps 20.00 22.00, settling 30.00 ms; timed before 12.00 (11.00 to 13.00) ms;"
        " the recorder started in 250 ms",
    ]


def test_a_row_without_a_plain_step_has_no_error_to_show() -> None:
    row: dict[str, Any] = {
        "plain_ns": None,
        "recorded_ns": 21 * _MS,
        "undistorted_ns": None,
        "error": None,
        "taken_out": None,
    }
    row |= {"by": None}
    assert shown({**row, **steps_told([])}) == "plain ?, recorded 21.00, undistorted ? ms"


def _row(error: float, before: float = 10.0, after: float = 10.0, spread: float = 0.02) -> Any:
    """A recording between steps that long, in ms, each with that spread."""
    timed = {
        which: {"median": each, "q1": each * (1 - spread), "q3": each * (1 + spread)}
        for which, each in (("before", before), ("after", after))
    }
    return {"error": error, "timed_ms": timed}


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (_row(0.0), True),
        (_row(0.0, after=10.4), True),
        (_row(0.0, after=10.6), False),
        (_row(0.0, spread=0.12), False),
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
    """Whose steps take ever less time by a thousandth, so many times as long while something records, and thrice as
    long while something settles: two steps each time."""

    def __init__(self) -> None:
        self.took = 1.0

    def steps(self, steps: int, settling: int, times: float = 1.0) -> float:
        self.took *= 0.999 ** (steps + settling)
        unsettled = max(0, (1 if times > 1 else 3) - settling)
        return self.took * times * (steps + 2 * unsettled) / steps

    def way(self, part: str, times: float) -> tuple[str, recording.Way]:
        return part, lambda steps: {part: self.steps(5, 1, times)}


def test_what_recording_costs_is_told_by_the_steps_before_and_behind() -> None:
    host = _Host()
    rounds = recording.Rounds(host.steps, [host.way("dear", 1.5), host.way("cheap", 1.1)], "")
    recording.take_turns([rounds], for_s=0)
    figures = rounds.figures()
    told = {way: cost["median"] for way, cost in figures["costs"].items()}
    assert set(told) == {"dear", "cheap", "left behind by dear", "left behind by cheap"}
    assert [told["dear"], told["cheap"]] == pytest.approx([1.5, 1.1], rel=0.002)
    assert [told["left behind by dear"], told["left behind by cheap"]] == pytest.approx([0.999**14] * 2)
    assert figures["rounds"] == 5
    assert figures["plain_ms"]["before all"] == pytest.approx(1000 * 0.999 ** (11 + 3 * 8))


def test_ways_come_in_a_drawn_order_of_each_program() -> None:
    def order(seed: str) -> str:
        said = []

        def way(name: str) -> tuple[str, recording.Way]:
            def record(steps: recording.Steps) -> dict[str, float]:
                said.append(name)
                return {name: steps(5, 1)}

            return name, record

        recording.take_turns([recording.Rounds(_Host().steps, [way("a"), way("b")], seed)], for_s=0)
        return "".join(said)

    orders = {order(seed) for seed in map(str, range(20))}
    assert len(orders) > 10
    assert all(sorted(each) == sorted("ababababab") for each in orders)
    assert order("x") == order("x")


def test_a_round_of_cupti_records_its_steps_and_has_as_many_without(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"cupti": 1.2}
    now: list[str] = []

    @contextmanager
    def records(way: str) -> Iterator[None]:
        now.append(way)
        yield
        now.pop()

    monkeypatch.setattr(recording, "recorded", records)
    host = _Host()
    rounds = recording.Rounds(lambda *asked: host.steps(*asked, *map(costs.get, now)), recording.WAYS["cupti"], "")
    recording.take_turns([rounds], for_s=0)
    told = {way: cost["median"] for way, cost in rounds.figures()["costs"].items() if not way.startswith("left")}
    assert told[recording.CUPTI] == pytest.approx(1.2, rel=0.02)
    assert recording.NOTHING in told
    assert "  cupti                 " in recording.shown(rounds.figures())


def test_programs_whose_figures_are_exact_make_room_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one program each round costs the same, of the other ever more, and takes a second."""
    now = 0.0
    even, uneven = _Host(), _Host()

    def dearer(steps: recording.Steps) -> dict[str, float]:
        nonlocal now
        now += 1
        return {"uneven": uneven.steps(5, 1, 1 + now / 10)}

    monkeypatch.setattr("time.monotonic", lambda: now)
    of_even = recording.Rounds(even.steps, [even.way("even", 1.1)], "")
    of_uneven = recording.Rounds(uneven.steps, [("uneven", dearer)], "")
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
    assert recording.summary(costs).startswith(told)


@pytest.mark.parametrize("slower", [1.0, 1.25])
def test_what_a_recording_leaves_behind_shows_by_a_process_that_has_not_recorded(slower: float) -> None:
    """A host that is ever faster, of two processes one that is slower by a tenth in itself, and noise."""
    host, noise = _Host(), random.Random(1)
    own = {"one": 1.1, "other": 1.0}

    def timer(process: str) -> recording_over.Timer:
        return lambda: own[process] * host.steps(5, 3) * noise.gauss(1, 0.01)

    parts = {}
    for part in ("first", "neither", "one", "both"):
        own["one"] *= slower if part == "one" else 1.0
        own["other"] *= slower if part == "both" else 1.0
        rounds = (recording_over.in_turns({"": (timer("one"), timer("other"))}, for_s=0)[""] for _ in range(20))
        parts[part] = [each for some in rounds for each in some]
    row = recording_over.over(parts)
    assert set(row["rounds"].values()) == {100}
    assert row["neither"]["median"] == pytest.approx(1.1, rel=0.01)
    for figure, true in ((row["over"], slower), (row["chance"], 1.0)):
        assert abs(figure["median"] - true) < 4 * figure["error"]
        assert 0.0005 < figure["error"] < 0.005
    assert recording_over.shown(row).endswith("100 rounds)")


def test_a_program_that_is_exact_leaves_its_time_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now, noise = 0.0, random.Random(1)

    def noisy() -> float:
        nonlocal now
        now += 1
        return noise.gauss(1, 0.1)

    monkeypatch.setattr("time.monotonic", lambda: now)
    timers: dict[str, tuple[recording_over.Timer, recording_over.Timer]] = {
        "exact": (lambda: 1.0, lambda: 1.0),
        "noisy": (noisy, noisy),
    }
    rounds = {name: len(each) for name, each in recording_over.in_turns(timers, for_s=80).items()}
    assert rounds == {"exact": 5, "noisy": 20}


def test_which_process_is_timed_first_is_drawn() -> None:
    timed: list[int] = []

    def timer(process: int) -> recording_over.Timer:
        def time_steps() -> float:
            timed.append(process)
            return 1.0

        return time_steps

    recording_over.in_turns({"": (timer(0), timer(1))}, for_s=0)
    rounds = [tuple(timed[at : at + 4]) for at in range(0, len(timed), 4)]
    assert len(rounds) == 5
    assert set(rounds) == {(0, 1, 1, 0), (1, 0, 0, 1)}


def test_the_error_of_a_median_is_that_of_a_normal_distribution() -> None:
    chance = random.Random(1)
    values = [chance.gauss(1, 0.05) for _ in range(400)]
    told = recording.middle(values)
    assert told["median"] == pytest.approx(1, abs=0.01)
    assert told["error"] == pytest.approx(1.2533 * 0.05 / 20, rel=0.3)
