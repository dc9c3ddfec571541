"""Reports of runs on a virtual GPU: they know of no recorder, and say how far off such times were."""

from __future__ import annotations

from pathlib import Path

import pytest
from changes.runs import launching, recorded
from traces import TraceBuilder
from virtual.simulate.logs import MIB
from virtual.simulate.runs import begin

import unstall
from unstall.answers.explain import explain
from unstall.answers.report import Report
from unstall.document.formats import FORMATS, render

ERROR = "on an H200, of 39 steps: within 13 %"


@pytest.fixture(scope="module")
def report() -> Report:
    return explain(recorded(launching(30), recorder="virtual", known_error=ERROR).timeline())


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"html"}))
def test_the_known_error_is_in_every_format(report: Report, form: str) -> None:
    assert ERROR in render(report.document(), form).replace("%25", "%").replace("\\", "")


@pytest.mark.parametrize("form", ["text", "markdown", "github"])
def test_it_is_simulated_and_nothing_was_recorded(report: Report, form: str) -> None:
    text = render(report.document(), form)
    assert "simulated for NVIDIA H200" in text
    assert "record" not in text


def test_the_known_error_stands_in_the_head(report: Report) -> None:
    head, _, _ = str(report).partition("\n\n")
    assert head.splitlines()[-1] == f"known error: {ERROR}"


def test_what_if_starts_from_the_step_as_simulated(tmp_path: Path) -> None:
    timeline = recorded(launching(30), recorder="virtual", known_error=ERROR).timeline()
    text = str(unstall.whatif(timeline, ["host-speed:2"]))
    assert "simulated for NVIDIA H200" in text
    assert ERROR in text
    assert "as simulated" in text
    assert "record" not in text


def test_a_program_that_only_takes_memory_of_the_gpu_is_not_asked_whether_it_uses_it() -> None:
    log, simulator = begin()
    log.malloc(80 * MIB)
    report = explain(simulator.timeline())
    assert "launched nothing" in report.verdict.text
    assert "it only allocated up to 80.0 MiB of GPU memory at a time" in report.verdict.text
    assert not report.findings


def test_memory_that_grows_is_found_in_a_program_that_launches_nothing() -> None:
    log, simulator = begin()
    for count in range(1, 11):
        with log.op("aten::empty"):
            tensor = log.malloc(32 * count * MIB)
        log.free(tensor)
    report = explain(simulator.timeline())
    assert [finding.rule for finding in report.findings] == ["growing-memory"]
    assert "Memory is reserved in growing steps" in str(report)


def test_a_program_that_put_nothing_on_the_gpu_is_told_so() -> None:
    def idle(trace: TraceBuilder, step: int) -> None:
        with trace.op("aten::mm"):
            trace.work(30)

    report = explain(recorded(idle, recorder="virtual").timeline())
    assert report.verdict.text.startswith("No device work was put on the virtual GPU")
    assert report.verdict.text.endswith("Child processes are left out.")
    assert "record" not in str(report)
