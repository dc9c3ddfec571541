"""What a program does once, before its steps, is no fault of the steps."""

from __future__ import annotations

import msgspec
import pytest
from findings import result_of
from traces import TraceBuilder

from unstall.document.json import encode
from unstall.result import Finding, Result

_SHORT = {"schema": "unstall.recording/1", "lines": "exact", "shortfall": "the run has 2 steps, too few"}


def two_steps(*, from_the_start: bool = True) -> Result:
    """The first has an upload in it that is made once, and both have 24 short kernels and a wait."""
    trace = TraceBuilder(unstall=_SHORT if from_the_start else {**_SHORT, "shortfall": None})
    for number in range(2):
        with trace.step():
            if number == 0:
                with trace.frame("train.py", 3, "<module>"), trace.op("aten::to"):
                    trace.copy("HtoD", 200, memory="Pageable")
            for kernel in range(24):
                with trace.frame("train.py", 7, "<module>"), trace.op("aten::relu"):
                    trace.launch(f"kernel_{kernel}", 3)
            with trace.frame("train.py", 8, "<module>"):
                trace.item()
    return result_of(trace)


def the(result: Result, rule: str) -> Finding:
    (finding,) = (each for each in result.findings if each.rule == rule)
    return finding


def test_what_only_the_beginning_had_is_not_worth_changing_nor_planned() -> None:
    result = two_steps()
    assert the(result, "pageable-copy").harmless
    assert result.plan is not None
    assert not any("train.py:3" in step.edit for step in result.plan)


def test_its_result_is_written_and_read() -> None:
    result = two_steps()
    assert msgspec.json.decode(encode(result), type=Result) == result


def test_of_two_steps_later_on_it_may_come_in_each_other_one() -> None:
    assert not the(two_steps(from_the_start=False), "pageable-copy").harmless


def test_a_capture_of_each_step_is_not_told_to_mend_it_first() -> None:
    fix = the(two_steps(), "launch-bound").fix
    assert "(train.py:8 aten::item)" in fix
    assert "train.py:3" not in fix
    assert "put what each step does here (train.py:7 to 8)" in fix


@pytest.mark.parametrize(("copies", "said"), [(1, "make the tensor on the device"), (3, "made anew on the host each")])
def test_what_is_made_once_is_not_made_each_time(copies: int, said: str) -> None:
    trace = TraceBuilder()
    for _ in range(copies):
        with trace.frame("train.py", 3, "<module>"):
            trace.launch("gemm", 300)
            with trace.op("aten::stack"):
                trace.work(3)
            with trace.op("aten::to"):
                trace.copy("HtoD", 2, memory="Pageable", size=64)
                trace.sync()
    assert the(result_of(trace), "pageable-copy").fix.startswith(said if copies == 1 else f"the tensor is {said}")
