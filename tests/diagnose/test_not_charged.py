"""A simulated run says how much of the program's own work is not in its times."""

from __future__ import annotations

import pytest
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.report.verdict_text import in_short
from unstall.result import Result

STEPS, STEP_MS = 6, 20


def result(free_ms: float | None, at: str = "at train.py:4") -> Result:
    trace = TraceBuilder()
    for _ in range(STEPS):
        with trace.step(), trace.op("aten::mm"):
            trace.launch("gemm", STEP_MS * 1_000)
            trace.sync()
    took = None if free_ms is None else round(free_ms * 1e6)
    return explain(trace.timeline().with_meta(free_work=True, free_work_ns=took, free_work_at=at)).result


def test_the_summary_begins_with_it_and_with_what_to_do() -> None:
    found = result(11)
    begins = in_short(found.verdict.text, found.integrity.shortfall)
    assert begins.startswith(
        "Work that is not torch's (NumPy, loops, other libraries) took 11.0 ms a step here, mostly at train.py:4, and "
        "is not in these times: unstall run --host mixed charges it. Device-bound"
    )


@pytest.mark.parametrize("free_ms", [None, 0.8, 0.09 * STEP_MS])
def test_little_or_unknown_work_is_not_worth_a_word(free_ms: float | None) -> None:
    assert result(free_ms).integrity.shortfall is None
