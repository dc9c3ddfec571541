"""A timeline that is written as a trace is read back as it was."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from virtual.simulate.runs import begin

from unstall.answers.explain import explain
from unstall.locate.kinds import is_asleep
from unstall.read import load
from unstall.replay.build import build
from unstall.replay.engine import replay
from unstall.timeline.columns import Host, HostKind, RaceKind, Races, Timeline
from unstall.virtual.log import LogCode
from unstall.virtual.profiler.frames import with_frames
from unstall.virtual.profiler.trace_file import write_trace

_TRACES = Path(__file__).parents[3] / "examples" / "traces"
_RECORDED = ["decode", "two_streams", "waits", "empty_cache", "uploads", "bert_amp.no_stacks", "pin_each_step"]
_RENUMBERED = {"correlation"}
_OF_THE_DEVICE = {"threads.thread", "threads.name"}  # some recorders have "threads" for it too
_TEXTS = {
    *("host.name", "host.shapes", "device.name", "lines.file", "lines.function"),
    *("threads.process", "threads.thread", "threads.name"),
}


@pytest.mark.parametrize("name", _RECORDED)
def test_every_column_of_a_recorded_run_comes_back(name: str, tmp_path: Path) -> None:
    given = load(_TRACES / f"{name}.json.gz")
    found = _through_a_file(given, tmp_path / "trace.json.gz")
    for table, columns in given.tables.items():
        for column in columns.__struct_fields__:
            where = f"{table}.{column}"
            if column not in _RENUMBERED and where not in _OF_THE_DEVICE:
                assert _told(found, where) == _told(given, where), where
    assert replace(found.meta, path="", notes=()) == replace(given.meta, path="", notes=())


@pytest.mark.parametrize("name", ["decode", "train_item", "decode_graph"])
def test_it_is_explained_in_the_same_words(name: str, tmp_path: Path) -> None:
    given = load(_TRACES / f"{name}.json.gz")
    found = _through_a_file(given, tmp_path / "trace.json")
    assert explain(_unnamed(found)).to_json() == explain(_unnamed(given)).to_json()


def test_that_a_thread_slept_comes_back_with_its_line(tmp_path: Path) -> None:
    """On the virtual GPU frames are known at calls alone, and one that does nothing but sleep takes as long."""
    log, simulator = begin()
    log.frames.append([(sys._getframe().f_code, 0)])
    log.stack = 0
    for _ in range(4):
        log.launch(1_000)
        log.write(LogCode.ADVANCE, 2_000_000)
    given = simulator.timeline()
    found = _through_a_file(given, tmp_path / "trace.json.gz")
    for timeline in (given, found):
        asleep = np.flatnonzero(is_asleep(timeline))
        assert (timeline.host.end - timeline.host.start)[asleep].tolist() == [2_000_000] * 4
        (finding,) = (each for each in explain(timeline).result.findings if each.rule == "python-bound")
        assert finding.title.startswith("The device waits while the host sleeps")
        assert finding.where.file is not None
        assert finding.where.file.endswith("test_chrome_trace.py")
    in_hand = with_frames(given)
    assert (in_hand.host.kind == HostKind.PYTHON).any()
    assert _told(in_hand, "host.name") == _told(found, "host.name")
    assert explain(_from_a_file(in_hand)).to_json() == explain(_from_a_file(found)).to_json()


def test_races_come_back(tmp_path: Path) -> None:
    given = load(_TRACES / "two_streams.json.gz")
    host = given.host.kind
    operators, copies = np.flatnonzero(host == HostKind.OP), np.flatnonzero(host == HostKind.LAUNCH)
    races = Races(
        kind=np.array([RaceKind.READ_EARLY, RaceKind.REUSED, RaceKind.WRITTEN_TWICE], np.int8),
        earlier=np.array([copies[0], -1, operators[0]], np.int32),
        later=np.array([operators[-1], copies[-1], operators[7]], np.int32),
        earlier_stream=np.array([0, 1, 1], np.int32),
        later_stream=np.array([-1, 0, 0], np.int32),
        bytes=np.array([4, 1 << 40, 0], np.int64),
        count=np.array([1, 2, 3], np.int64),
    )
    found = _through_a_file(replace(given, races=races), tmp_path / "trace.json.gz")
    assert {column: getattr(found.races, column).tolist() for column in Races.__struct_fields__} == {
        column: getattr(races, column).tolist() for column in Races.__struct_fields__
    }


def test_stacks_without_frames_are_written_as_slices_that_give_them_back(tmp_path: Path) -> None:
    recorded = load(_TRACES / "waits.json.gz")
    given = _without_frames(recorded)
    found = _through_a_file(given, tmp_path / "trace.json")
    calls = found.host.kind != HostKind.PYTHON
    calls &= found.host.kind != HostKind.ANNOTATION
    wanted = given.host.kind != HostKind.ANNOTATION
    assert [_frames(found, row) for row in found.host.stack[calls]] == [
        _frames(given, row) for row in given.host.stack[wanted]
    ]


def test_the_known_error_of_simulated_times_comes_back(tmp_path: Path) -> None:
    recorded = load(_TRACES / "waits.json.gz")
    given = recorded.with_meta(recorder="virtual", known_error="within 9 %")
    assert _through_a_file(given, tmp_path / "trace.json").meta.known_error == "within 9 %"


def test_an_event_of_a_stream_without_work_holds_nothing(tmp_path: Path) -> None:
    """As if a side stream waits for the program's own stream, and all work is on other streams."""
    log, simulator = begin()
    for _ in range(3):
        log.launch(50_000, stream=3)
        log.write(LogCode.EVENT_RECORD, 1, stream=0)
        log.write(LogCode.EVENT_WAIT, 1, stream=5)
        log.launch(50_000, stream=5, fills=False)
    given = simulator.timeline()
    found = _through_a_file(given, tmp_path / "trace.json")
    assert found.waits.on_stream.tolist() == [-1, -1, -1]
    program = build(found, np.array([0]), np.array([int(found.host.end.max())]))
    # A kernel beside one that uses a thousandth of the device is a thousandth slower.
    assert replay(program).op_end.max() == pytest.approx(given.device.end.max(), rel=1e-3)


def test_that_launches_block_comes_back(tmp_path: Path) -> None:
    recorded = load(_TRACES / "waits.json.gz")
    given = recorded.with_meta(launches_block=True)
    assert _through_a_file(given, tmp_path / "trace.json").meta.launches_block


def test_that_convolutions_may_multiply_in_tf32_comes_back(tmp_path: Path) -> None:
    given = load(_TRACES / "waits.json.gz").with_meta(tf32_convolutions=True)
    assert _through_a_file(given, tmp_path / "trace.json").meta.tf32_convolutions


def test_that_other_work_took_no_time_comes_back(tmp_path: Path) -> None:
    told = {"free_work": True, "free_work_ns": 11_000_000, "free_work_at": "at train.py:4"}
    meta = _through_a_file(load(_TRACES / "waits.json.gz").with_meta(**told), tmp_path / "trace.json").meta
    assert {name: getattr(meta, name) for name in told} == told


def test_what_the_run_was_told_of_steps_and_of_the_users_files_comes_back(tmp_path: Path) -> None:
    recorded = load(_TRACES / "waits.json.gz")
    given = recorded.with_meta(step="batch", user=("src/*", "train.py"))
    found = _through_a_file(given, tmp_path / "trace.json").meta
    assert (found.step, found.user) == ("batch", ("src/*", "train.py"))


def _through_a_file(timeline: Timeline, path: Path) -> Timeline:
    write_trace(timeline, path)
    return load(path)


def _unnamed(timeline: Timeline) -> Timeline:
    return timeline.with_meta(path="run", notes=())


def _from_a_file(timeline: Timeline) -> Timeline:
    """The same, but for where it came from, as if a reader of files had it."""
    return timeline.with_meta(path="run", reader="kineto")


def _told(timeline: Timeline, where: str) -> list[object]:
    """A column's values, as texts where it has numbers of texts."""
    table, column = where.split(".")
    values = getattr(timeline.tables[table], column).tolist()
    return [timeline.text(value) for value in values] if where in _TEXTS else values


def _frames(timeline: Timeline, stack: int) -> list[tuple[str, int, str]]:
    lines, frames = timeline.lines, []
    while stack >= 0:
        line = timeline.stacks.line[stack]
        frames.append((timeline.text(lines.file[line]), int(lines.line[line]), timeline.text(lines.function[line])))
        stack = timeline.stacks.parent[stack]
    return frames


def _without_frames(timeline: Timeline) -> Timeline:
    """As one whose events know their stacks, but which has no rows of frames."""
    host = timeline.host
    kept = host.kind != HostKind.PYTHON
    row = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)
    parent = host.parent.copy()
    while (inside := (parent >= 0) & ~kept[parent]).any():
        parent[inside] = host.parent[parent[inside]]
    columns = {f: getattr(host, f)[kept] for f in Host.__struct_fields__}
    columns |= {name: row[columns[name]] for name in ("op", "forward")} | {"parent": row[parent[kept]]}
    waits = timeline.waits
    return replace(
        timeline,
        host=Host(**columns),
        device=replace(timeline.device, launch=row[timeline.device.launch]),
        waits=replace(waits, host=row[waits.host], record=row[waits.record]),
    )
