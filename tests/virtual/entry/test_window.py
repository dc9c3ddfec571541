"""A part of a timeline by time is a timeline: its rows, and what they point to."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstall.read import load
from unstall.timeline import Timeline
from unstall.virtual.timeline.steps import with_steps
from unstall.virtual.timeline.window import cut

_TRACES = Path(__file__).parents[3] / "examples" / "traces"


@pytest.fixture(scope="module")
def run() -> Timeline:
    return load(_TRACES / "two_streams.json.gz")


def test_all_of_the_time_is_all_of_the_run(run: Timeline) -> None:
    same = cut(run, 0, 2**62)
    for name, table in run.tables.items():
        for column in table.__slots__:
            assert list(getattr(same.tables[name], column)) == list(getattr(table, column))


def test_two_parts_hold_each_event_once_but_what_was_queued_and_can_be_saved(run: Timeline, tmp_path: Path) -> None:
    middle = int(run.host.start[len(run.host) // 2])
    parts = [cut(run, 0, middle), cut(run, middle, 2**62)]
    for name in ("host", "waits"):
        assert sum(len(part.tables[name]) for part in parts) == len(run.tables[name])
    queued = (run.host.start[run.device.launch] < middle) & (run.device.end > middle)
    assert queued.any()
    assert sum(len(part.device) for part in parts) == len(run.device) + queued.sum()
    assert (parts[1].device.launch < 0).sum() == queued.sum()
    assert min(parts[1].host.start.min(), parts[1].device.start.min()) == 0
    for part in parts:
        part.save(tmp_path / "part")
        load(tmp_path / "part")  # checks that every index points somewhere


def test_a_kept_kernel_was_launched_by_the_call_that_launched_it(run: Timeline) -> None:
    middle = int(run.host.start[len(run.host) // 2])
    part = cut(run, middle, 2**62)
    launched = part.device.launch >= 0
    assert launched.any()
    assert (part.host.correlation[part.device.launch[launched]] == part.device.correlation[launched]).all()


def test_marks_become_steps_and_the_rows_keep_what_they_point_to(run: Timeline, tmp_path: Path) -> None:
    marks = [int(run.host.end.max()) * part // 4 for part in (1, 2, 3)]
    marked = with_steps(run, marks)
    names = [marked.text(name) for name in marked.host.name]
    steps = [row for row, name in enumerate(names) if name.startswith("unstall.step#")]
    assert [(marked.host.start[row], marked.host.end[row]) for row in steps] == [
        (marks[0], marks[1]),
        (marks[1], marks[2]),
    ]
    assert len(marked.host) == len(run.host) + 2
    launched = marked.device.launch >= 0
    assert (
        marked.host.correlation[marked.device.launch[launched]] == run.host.correlation[run.device.launch[launched]]
    ).all()
    marked.save(tmp_path / "marked")
    load(tmp_path / "marked")


def test_a_lone_mark_ends_a_step_that_began_with_the_run(run: Timeline) -> None:
    marked = with_steps(run, [5_000])
    names = [marked.text(name) for name in marked.host.name]
    row = names.index("unstall.step#0")
    assert (marked.host.start[row], marked.host.end[row]) == (0, 5_000)
