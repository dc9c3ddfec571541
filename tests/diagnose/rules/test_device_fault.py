"""Faults of a timeline as findings: at the line that failed, and alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.answers.explain import explain
from unstall.answers.report import Report
from unstall.document.formats import render
from unstall.report.short import document as short_form
from unstall.result import Finding
from unstall.timeline.columns import FaultKind, Faults, Held, Timeline
from unstall.timeline.fault_details import FaultDetails, FaultInput, WrongValue, packed

WRONG = WrongValue(argument="index", value=63, position=(1, 4), least=0, bound=50, count=2, of=12)
DETAILS = FaultDetails(
    check="index 63 is out of bounds",
    kernel="aten::gather",
    inputs=(FaultInput("self", "float32", (6, 50)),),
    wrong=WRONG,
)


def trained() -> Timeline:
    """Three steps: gather at line 12, its backward pass, and a slow .item() at line 14."""
    trace = TraceBuilder()
    for number in range(3):
        with trace.step(), trace.frame("train.py", 10, "train"):
            with trace.frame("train.py", 12, "pick"), trace.op("aten::gather", sequence=number):
                trace.launch("gather", 50)
            with trace.backward("GatherBackward0", number), trace.op("aten::scatter_add_"):
                trace.launch("scatter", 50)
            with trace.frame("train.py", 14, "read"), trace.op("aten::item"):
                trace.sync()
            trace.work(200)
    return trace.timeline()


def row_of(timeline: Timeline, name: str, nth: int = 0) -> int:
    return int(np.flatnonzero(timeline.host.name == timeline.strings.index(name))[nth])


def faulted(timeline: Timeline, *rows: dict[str, Any]) -> Report:
    """A row of Faults by its fields; the rest is that of a fault of gather in the second step."""
    usual: dict[str, Any] = {
        "kind": FaultKind.INDEX,
        "call": row_of(timeline, "aten::gather", 1),
        "replay": -1,
        "noticed": row_of(timeline, "aten::item", 1),
        "device": 0,
        "stream": 0,
        "iteration": 2,
        "ended": True,
        "details": DETAILS,
    }
    given = [{**usual, **row} for row in rows]
    texts = [row["details"] if isinstance(row["details"], str) else packed(row["details"]) for row in given]
    none = Faults.none()
    columns = {
        name: np.array([row[name] for row in given], getattr(none, name).dtype) for name in usual if name != "details"
    }
    details = np.arange(len(texts), dtype=np.int32) + len(timeline.strings)
    table = Faults(**columns, details=details)
    return explain(replace(timeline, strings=(*timeline.strings, *texts), faults=table))


def finding(report: Report) -> Finding:
    (only,) = report.findings
    return only


def test_it_is_the_only_finding_at_the_line_that_failed() -> None:
    found = finding(faulted(trained(), {}))

    assert (found.rule, found.wrong, found.gain_ns) == ("device-fault", True, None)
    assert (found.where.file, found.where.line, found.where.op) == ("train.py", 12, "aten::gather")


def test_it_says_what_was_wrong_and_when_python_noticed() -> None:
    said = finding(faulted(trained(), {})).saw

    assert "index 63 at [1, 4] is out of bounds for a size of 50 (2 of 12 indices are wrong)" in said
    assert "aten::gather of input float32 [6, 50], on stream 7" in said
    assert "in step 2" in said
    assert "Python noticed at train.py:14 (aten::item), " in said


def test_nothing_is_said_of_speed() -> None:
    report = faulted(trained(), {})
    result = report.result

    assert (result.plan, result.replay, result.floor_ns, result.lines) == (None, None, None, ())
    assert result.verdict.text.startswith("The program ended by a device fault at train.py:12: index 63 at [1, 4]")
    for text in (str(report), render(short_form(result), "text")):
        assert "Bugs: a device failed, and computed nothing after" in text
        assert "Findings" not in text
        assert "gain" not in text


def test_the_short_form_has_all_of_it() -> None:
    text = render(short_form(faulted(trained(), {}).result), "text")

    assert "Python noticed at train.py:14" in " ".join(text.split())
    assert "mend what makes the index: it must be below 50" in " ".join(text.split())


def test_json_has_it_as_data() -> None:
    fault = json.loads(faulted(trained(), {}).to_json())["findings"][0]["fault"]

    assert (fault["kind"], fault["kernel"], fault["iteration"], fault["device"]) == ("index", "aten::gather", 2, 0)
    assert fault["wrong"] == {
        "argument": "index",
        "value": 63,
        "position": [1, 4],
        "least": 0,
        "bound": 50,
        "count": 2,
        "of": 12,
    }
    assert fault["inputs"] == [{"name": "self", "dtype": "float32", "shape": [6, 50]}]


def test_other_findings_have_none() -> None:
    assert {found.fault for found in explain(trained()).findings} == {None}


def test_a_backward_pass_is_at_the_forward_line() -> None:
    timeline = trained()
    found = finding(faulted(timeline, {"call": row_of(timeline, "aten::scatter_add_", 1)}))

    assert found.where.line == 12
    assert found.fault is not None
    assert (found.fault.backward, found.fault.operator) == (True, "GatherBackward0")


def test_without_steps_the_calls_from_the_line_are_counted() -> None:
    found = finding(faulted(trained(), {"iteration": -1}))

    assert found.fault is not None
    assert (found.fault.iteration, found.fault.call) == (None, 2)
    assert "in call 2 from here" in found.saw


def test_what_nobody_noticed_is_said() -> None:
    report = faulted(trained(), {"noticed": -1, "ended": False})

    assert "A device fault at train.py:12, of which Python was never told" in report.verdict.text
    assert "Python never noticed" in finding(report).saw


def test_the_fault_that_ended_the_program_is_told_first() -> None:
    report = faulted(trained(), {"ended": False, "device": 1}, {})

    assert len(report.findings) == 2
    assert report.verdict.text.startswith("The program ended by a device fault at train.py:12")
    assert "A device fault at train.py:12: index 63" in report.verdict.text


def test_a_fault_whose_call_is_not_known_is_told_without_a_line() -> None:
    found = finding(faulted(trained(), {"call": -1}))

    assert found.where.file is None
    assert "index 63 at [1, 4]" in found.saw


def test_details_that_cannot_be_read_leave_a_finding_without_a_value() -> None:
    found = finding(faulted(trained(), {"details": "no JSON"}))

    assert found.fault is not None
    assert (found.fault.wrong, found.fault.check) == (None, "")
    assert found.where.line == 12


def test_full_memory_is_told_with_what_holds_it_by_line() -> None:
    timeline = trained()
    gathers, item = [row_of(timeline, "aten::gather", nth) for nth in (0, 1)], row_of(timeline, "aten::item")
    held = Held(np.array([*gathers, item], np.int32), np.array([3 << 30, 1 << 30, 1 << 20]), np.array([3, 1, 1]))
    details = FaultDetails(
        check="CUDA out of memory. Tried to allocate 2.00 GiB. If reserved but unallocated memory is…"
    )
    report = faulted(replace(timeline, held=held), {"kind": FaultKind.MEMORY, "noticed": -1, "details": details})
    found = finding(report)

    assert (found.rule, found.where.line) == ("out-of-memory", 12)
    assert found.fault is not None
    assert [(part.where.line, part.bytes, part.count) for part in found.fault.held] == [
        (12, 4 << 30, 4),
        (14, 1 << 20, 1),
    ]
    assert "train.py:12 (aten::gather) 4.00 GiB (>99.9 %) in 4 allocations" in found.saw
    assert "If reserved" not in found.saw
    assert "as the device's memory was full: train.py:12 holds 4.00 GiB" in report.verdict.text
    assert "Bugs: the device's memory is full" in str(report)


@pytest.mark.parametrize("kind", list(FaultKind))
def test_every_kind_has_its_words(kind: FaultKind) -> None:
    found = finding(faulted(trained(), {"kind": kind}))

    assert found.title
    assert len(found.fix) > 20
