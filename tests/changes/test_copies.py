"""Copies that came, went, moved, or became pinned or non-blocking."""

from __future__ import annotations

from changes.runs import compared, recorded, steps
from traces import Memory, TraceBuilder


def _uploading(
    memory: Memory, *, op: str = "aten::to", file: str = "data.py", size: int = 4_000_000, wait: bool = False
) -> TraceBuilder:
    def body(trace: TraceBuilder, step: int) -> None:
        with trace.frame(file, 3, "load"), trace.op(op):
            trace.copy("HtoD", 100, memory=memory, size=size)
            if wait:
                trace.sync()
        trace.launch("gemm", 100)

    return steps(body)


def test_a_pageable_copy_becomes_pinned_and_non_blocking() -> None:
    (change,) = compared(_uploading("Pageable"), _uploading("Pinned")).copies
    assert change.became == ("pinned", "non-blocking")
    assert (change.pageable.a, change.pageable.b, change.pinned.b) == (1, 0, 1)
    assert (change.direction, change.bytes.a, change.bytes.b) == ("host to device", 4_000_000, 4_000_000)


def test_the_other_way_it_becomes_pageable_and_blocking() -> None:
    (change,) = compared(_uploading("Pinned"), _uploading("Pageable")).copies
    assert change.became == ("pageable", "blocking")


def test_a_pinned_copy_that_no_longer_waits_is_non_blocking() -> None:
    (change,) = compared(_uploading("Pinned", wait=True), _uploading("Pinned")).copies
    assert change.became == ("non-blocking",)


def test_copies_of_more_bytes_are_a_change() -> None:
    (change,) = compared(_uploading("Pinned"), _uploading("Pinned", size=8_000_000)).copies
    assert (change.status, change.became) == ("changed", ())
    assert change.bytes.b == 8_000_000


def test_a_copy_is_found_again_under_another_operator_of_its_line() -> None:
    (change,) = compared(_uploading("Pageable"), _uploading("Pinned", op="aten::copy_")).copies
    assert change.where_a
    assert change.where_b
    assert (change.where_a.op, change.where_b.op) == ("aten::to", "aten::copy_")


def test_a_large_copy_that_moved_to_another_function_is_the_same_copy() -> None:
    (change,) = compared(_uploading("Pageable"), _uploading("Pinned", file="prefetch.py")).copies
    assert "pinned" in change.became


def test_reading_one_value_is_a_wait_and_no_copy() -> None:
    def reading(trace: TraceBuilder, step: int) -> None:
        trace.launch("gemm", 100)
        trace.item()

    result = compared(steps(reading), steps(lambda trace, step: trace.launch("gemm", 100)))
    assert result.copies == ()
    assert [change.status for change in result.waits] == ["gone"]


def test_without_operators_the_wait_that_follows_at_once_is_the_copys() -> None:
    def saving(wait: bool) -> TraceBuilder:
        def body(trace: TraceBuilder, step: int) -> None:
            trace.copy("DtoH", 100, size=4_000_000)
            if wait:
                trace.sync()
            trace.launch("gemm", 100)

        return recorded(body)

    (change,) = compared(saving(True), saving(False)).copies
    assert change.became == ("non-blocking",)
    assert (change.blocking.a, change.blocking.b) == (1, 0)
