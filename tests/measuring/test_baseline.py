"""Baselines keep times, and are compared only with times of their kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unstall.errors import TraceError
from unstall.measuring.baseline import Entry, entry, held_against, read, save
from unstall.measuring.statistics import Spread


def _entry(ns: float, *, by: str = "wall", device: str = "A CPU", n: int = 50) -> Entry:
    noise = np.random.default_rng(1).normal(1, 0.01, n)
    return entry(Spread.of(ns * noise), by=by, cache="hot", device=device)


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    save(path, {"a": _entry(100.0)})
    save(path, {"b": _entry(200.0)})
    assert read(path).entries == {"a": _entry(100.0), "b": _entry(200.0)}


def test_many_samples_are_thinned_and_the_median_kept(tmp_path: Path) -> None:
    made = _entry(100.0, n=10_000)
    assert len(made.samples_ns) == 500
    assert made.median_ns == pytest.approx(100, rel=0.001)


def test_a_slower_time_is_found_and_one_within_the_budget_is_not(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    save(path, {"a": _entry(100.0)})
    (slower,) = held_against(path, {"a": _entry(110.0)})
    assert slower.ratio.median == pytest.approx(1.1)
    assert slower.is_slower(0.05)
    assert not slower.is_slower(0.15)
    (faster,) = held_against(path, {"a": _entry(50.0)})
    assert not faster.is_slower(0.05)


def test_a_change_that_may_be_chance_is_none(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    wild = np.random.default_rng(2).lognormal(0, 1, (2, 8))
    then, now = (
        entry(Spread.of(100 * each), by="wall", cache="hot", device="A CPU") for each in (wild[0], 1.1 * wild[0])
    )
    save(path, {"a": then})
    (held,) = held_against(path, {"a": now})
    assert not held.is_slower(0.05)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({"b": _entry(1.0)}, "there is nothing of 'b' in it"),
        ({"a": _entry(1.0, by="device")}, "its time was 'wall', and is 'device' now"),
        ({"a": _entry(1.0, device="Another")}, "its device was 'A CPU', and is 'Another' now"),
    ],
)
def test_what_cannot_be_compared_is_said(tmp_path: Path, now: dict[str, Entry], message: str) -> None:
    path = tmp_path / "baseline.json"
    save(path, {"a": _entry(1.0)})
    with pytest.raises(TraceError, match=message):
        held_against(path, now)


@pytest.mark.parametrize("text", [None, "{}", "not JSON", '{"schema": "unstall.bench/1", "entries": {}}'])
def test_a_file_of_something_else_is_none(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TraceError, match=r"baseline\.json"):
        read(path)
