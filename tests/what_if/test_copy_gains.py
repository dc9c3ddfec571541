"""A copy's gain is its own: it is no longer than the copy, the wait for it, and what staging its bytes takes.

In each step a small copy is beside the first use of something, which takes the host 80 ms.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay.recorded import A_FEW
from traces import TraceBuilder
from what_if.made import step_us

FIRST_USE_US = 80_000.0
EDITS = ["pin-copies", "read-later", "make-on-device", "reuse-pinned", "overlap-copies", "remove-syncs"]


def small(trace: TraceBuilder, direction: str, *, before: float = 0, behind: float = 0, free: str = "") -> None:
    """A copy of 112 bytes, and the wait for it. `free` says where the first use's cudaFree is."""
    with trace.op("aten::to"), trace.op("aten::_to_copy"):
        if free == "before":
            trace.free(FIRST_USE_US)
        with trace.op("aten::copy_"):
            trace.copy(direction, 2, memory="Pageable", size=112, host_us=5 + before, behind_us=behind)  # type: ignore[arg-type]
            if free == "between":
                trace.free(FIRST_USE_US)
            trace.sync()
        if free == "behind":
            trace.free(FIRST_USE_US)


BESIDE: dict[str, dict[str, float | str]] = {
    "in the call, before the copy": {"before": FIRST_USE_US},
    "in the call, behind the copy": {"behind": FIRST_USE_US},
    "a cudaFree before the copy": {"free": "before"},
    "a cudaFree before the wait": {"free": "between"},
    "a cudaFree behind the wait": {"free": "behind"},
}


def run(body: Callable[[TraceBuilder], object]) -> TraceBuilder:
    trace = TraceBuilder(enter_us=0.5, latency_us=3)
    for _ in range(4):
        with trace.step(), trace.frame("train.py", 10, "step"):
            for _ in range(3):
                with trace.op("aten::relu"):
                    trace.launch("relu", 2)
            trace.work(20)
            body(trace)
    return trace


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("direction", ["HtoD", "DtoH"])
@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
def test_the_first_use_of_the_device_is_not_the_gain_of_a_small_copy(
    beside: dict[str, float | str], direction: str, edit: str
) -> None:
    trace = run(lambda trace: small(trace, direction, **beside))  # type: ignore[arg-type]
    before = step_us(trace)
    assert before > FIRST_USE_US
    # The copy and what it waits for take 11 µs on the device, staging and four operators at most 20 and 32 µs.
    assert step_us(trace, f"{edit}:train.py:10") > before - 70


def test_a_value_that_is_read_at_the_first_use_gains_no_more_than_its_wait() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.launch("gemm", 100)
        with trace.op("aten::item"), trace.op("aten::_local_scalar_dense"):
            trace.free(FIRST_USE_US)
            trace.copy("DtoH", 1, size=4)
            trace.sync()

    assert step_us(run(body), "remove-syncs") > step_us(run(body)) - 120


@A_FEW
@given(
    st.sampled_from(["HtoD", "DtoH"]),
    st.integers(1, 4_000_000),
    st.floats(0, 20_000),
    st.floats(0, 20_000),
    st.sampled_from(["pin-copies", "read-later", "make-on-device", "reuse-pinned"]),
)
def test_a_copy_gains_no_more_than_itself_its_wait_and_its_staging(
    direction: str, size: int, before: float, behind: float, edit: str
) -> None:
    device_us = 1 + size / 10_000

    def body(trace: TraceBuilder) -> None:
        trace.launch("gemm", 300)
        with trace.op("aten::to"):
            trace.copy(
                direction,  # type: ignore[arg-type]
                device_us,
                memory="Pageable",
                size=size,
                host_us=5 + before,
                behind_us=behind,
            )
        trace.work(20)

    staging_us, wait_us, operators_us = 20 + size / 2 / 1_000, 300, 4 * 8
    most = device_us + wait_us + staging_us + operators_us
    assert step_us(run(body), edit) >= step_us(run(body)) - most - 1
