"""Races of a timeline as findings: before all costs, at both lines, in every report."""

from __future__ import annotations

import json

import numpy as np
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.answers.explain import explain
from unstall.answers.report import Report
from unstall.document.formats import render
from unstall.result import Finding
from unstall.timeline.columns import HostKind, RaceKind, Races, Timeline

HOST = -1


def two_streams() -> Timeline:
    """normal_ on stream 7 at line 12, sum on stream 20 at line 13, and a slow .item() at line 14; three steps."""
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 10, "train"):
            with trace.frame("train.py", 12, "fill"), trace.op("aten::normal_"):
                trace.launch("normal", 50)
            with trace.frame("train.py", 13, "total"), trace.op("aten::sum"):
                trace.launch("sum", 50, stream=20)
            with trace.frame("train.py", 14, "read"), trace.op("aten::item"):
                trace.sync()
            trace.work(200)
    return trace.timeline()


def with_races(timeline: Timeline, *races: tuple[RaceKind, int, int, int, int, int, int]) -> Report:
    columns = np.array(races, np.int64).reshape(-1, 7).T
    types = (np.int8, np.int32, np.int32, np.int32, np.int32, np.int64, np.int64)
    table = Races(*(column.astype(dtype) for column, dtype in zip(columns, types, strict=True)))
    return explain(replace(timeline, races=table))


def launches(timeline: Timeline) -> list[int]:
    rows: list[int] = np.flatnonzero(timeline.host.kind == HostKind.LAUNCH).tolist()
    return rows


def stream(timeline: Timeline, number: int) -> int:
    return int(np.flatnonzero(timeline.streams.stream == number)[0])


def sum_before_normal(timeline: Timeline) -> Report:
    calls = launches(timeline)
    s7, s20 = stream(timeline, 7), stream(timeline, 20)
    rows = [(RaceKind.READ_EARLY, calls[i], calls[i + 1], s7, s20, 4096, 2) for i in (0, 2)]
    return with_races(timeline, *rows)


def races_in(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == "race"]


def test_a_race_stands_first_and_names_both_lines_and_streams() -> None:
    report = sum_before_normal(two_streams())
    finding = report.findings[0]

    assert (finding.rule, finding.wrong, finding.count) == ("race", True, 4)
    assert (finding.where.file, finding.where.line, finding.where.op) == ("train.py", 13, "aten::sum")
    assert "aten::sum at train.py:13 on stream 20 reads 4.00 KiB" in finding.saw
    assert "aten::normal_ at train.py:12 on stream 7 may not have written yet" in finding.saw
    assert "let stream 20 wait for stream 7" in finding.fix
    assert len(report.findings) > 1, "costs stand after it"
    assert len(races_in(report)) == 1


def test_every_report_shows_it_before_the_costs() -> None:
    report = sum_before_normal(two_streams())

    for text in (str(report), render(report.document(), "markdown")):
        assert text.index("Race: read before the write has finished") < text.index("Findings, per step")
        assert "0 ns" not in text.splitlines()[text[: text.index("Race: ")].count("\n")]
    assert json.loads(report.to_json())["findings"][0]["wrong"] is True
    assert "::error file=train.py,line=13" in render(report.document(), "github")


def test_a_run_without_races_says_nothing_of_them() -> None:
    report = explain(two_streams())

    assert races_in(report) == []
    assert "Bugs" not in str(report)


def test_what_the_host_reads_early_is_mended_by_a_wait_of_the_host() -> None:
    timeline = two_streams()
    calls = launches(timeline)
    (finding,) = races_in(
        with_races(timeline, (RaceKind.READ_EARLY, calls[0], calls[1], stream(timeline, 7), HOST, 8, 1))
    )

    assert "on the host reads 8 B" in finding.saw
    assert "event.synchronize()" in finding.fix


def test_what_overwrites_early_waits_for_the_reader() -> None:
    timeline = two_streams()
    calls = launches(timeline)
    s7, s20 = stream(timeline, 7), stream(timeline, 20)
    (finding,) = races_in(with_races(timeline, (RaceKind.OVERWRITTEN_EARLY, calls[1], calls[2], s20, s7, 8, 1)))

    assert "aten::normal_ at train.py:12 on stream 7 writes 8 B" in finding.saw
    assert "on stream 20 may not have read yet" in finding.saw


def test_reused_memory_asks_for_record_stream() -> None:
    timeline = two_streams()
    calls = launches(timeline)
    s7, s20 = stream(timeline, 7), stream(timeline, 20)
    (finding,) = races_in(with_races(timeline, (RaceKind.REUSED, calls[1], calls[2], s20, s7, 8, 1)))

    assert "tensor.record_stream(stream) for stream 20" in finding.fix


def test_a_race_of_calls_that_are_not_in_the_timeline_is_still_told() -> None:
    timeline = two_streams()
    (finding,) = races_in(with_races(timeline, (RaceKind.WRITTEN_TWICE, -1, -1, 0, HOST, 8, 1)))

    assert finding.title == "Race: written twice, in no order"
    assert finding.where.file is None


def test_races_of_a_pair_of_lines_are_one_on_however_many_streams() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 10, "train"):
        for number in range(12):
            with trace.frame("train.py", 12, "fill"), trace.op("aten::normal_"):
                trace.launch("normal", 50)
            with trace.frame("train.py", 13, "total"), trace.op("aten::sum"):
                trace.launch("sum", 50, stream=20 + number)
    timeline = trace.timeline()
    calls, s7 = launches(timeline), stream(timeline, 7)
    rows = [
        (RaceKind.READ_EARLY, calls[2 * i], calls[2 * i + 1], s7, stream(timeline, 20 + i), 4096, 1) for i in range(12)
    ]
    (finding,) = races_in(with_races(timeline, *rows))

    assert finding.count == 12
    assert "aten::sum at train.py:13 on 12 streams (20, 21, 22, …) reads 4.00 KiB" in finding.saw
    assert "let 12 streams (20, 21, 22, …) wait for stream 7" in finding.fix
