"""Races as a table of a timeline, in memory and in its file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from traces import TraceBuilder
from virtual.races.logs import Log

from unstall.read import load
from unstall.timeline.columns import RaceKind, Races, Timeline
from unstall.virtual.log import LogCode
from unstall.virtual.races import races_table


def one_race() -> Log:
    log = Log()
    log.work(1, writes=(1,))
    log.work(2, reads=(1,))
    return log


def timeline_with(races: Races) -> Timeline:
    trace = TraceBuilder()
    trace.launch("normal", 5)
    trace.launch("sum", 5, stream=20)
    return replace(trace.timeline(), races=races)


def test_records_become_host_rows_and_streams_rows() -> None:
    table = races_table(one_race().found(), np.array([1, 0], np.int32), lambda device, stream: stream - 1)

    assert (table.kind[0], table.earlier[0], table.later[0]) == (RaceKind.READ_EARLY, 1, 0)
    assert (table.earlier_stream[0], table.later_stream[0]) == (0, 1)
    assert (table.bytes[0], table.count[0]) == (1024, 1)


def test_what_a_graph_ran_is_at_its_launch_where_it_has_no_row() -> None:
    log = Log()
    log.record(LogCode.CAPTURE_BEGIN, 1, a=1)
    log.work(1, writes=(1,))
    log.record(LogCode.CAPTURE_END, 1, a=1)
    log.record(LogCode.GRAPH_LAUNCH, 1, a=1)
    log.work(2, reads=(1,))

    table = races_table(log.found(), np.array([-1, -1, -1, 7, 8], np.int32), lambda device, stream: 0)

    assert (table.earlier[0], table.later[0]) == (7, 8)


def test_a_saved_timeline_keeps_its_races(tmp_path: Path) -> None:
    table = races_table(one_race().found(), np.array([0, 1], np.int32), lambda device, stream: stream - 1)
    timeline_with(table).save(tmp_path / "run.timeline")

    loaded = load(tmp_path / "run.timeline").races

    assert all((getattr(loaded, f) == getattr(table, f)).all() for f in Races.__struct_fields__)
    assert len(loaded) == 1


def test_a_timeline_saved_before_there_were_races_has_none(tmp_path: Path) -> None:
    timeline_with(Races.none()).save(tmp_path / "new.timeline")
    with zipfile.ZipFile(tmp_path / "new.timeline") as new, zipfile.ZipFile(tmp_path / "old.timeline", "w") as old:
        for name in new.namelist():
            if not name.startswith("races."):
                old.writestr(name, new.read(name))

    assert len(load(tmp_path / "old.timeline").races) == 0
