"""What a profiler's table says, and what it does not."""

from __future__ import annotations

from unstall.diagnose.profiler_table import Said, TableResult, explain_table
from unstall.read.profiler_table import ProfilerTable, TableRow

MS = 1_000_000


def result(*rows: TableRow, host: int | None = None, device: int | None = 0, **more: object) -> TableResult:
    table = {"unread": 0, "more": 0, **more}
    return explain_table(
        ProfilerTable("table.txt", None if device is None else "CUDA", rows, host, device, **table)  # type: ignore[arg-type]
    )


def host_row(name: str, calls: int, self_ms: float) -> TableRow:
    return TableRow(name, calls, round(self_ms * MS), round(self_ms * MS), 0, 0)


def kernel(name: str, calls: int, ms: float) -> TableRow:
    return TableRow(name, calls, 0, 0, round(ms * MS), round(ms * MS))


def said(found: TableResult, words: str) -> Said:
    return next(each for each in found.said if words in each.title)


def titles(found: TableResult) -> str:
    return " / ".join(each.title for each in found.said)


def first_use() -> TableResult:
    rows = (host_row("aten::conv2d", 9, 1.9), host_row("cudaLaunchKernel", 45, 933.7), kernel("conv", 45, 0.195))
    return result(*rows, host=round(935.6 * MS), device=195_000)


def test_launches_of_an_idle_device_that_take_long_load_modules() -> None:
    found = first_use()
    cause = found.said[0]
    assert cause.kind == "cause"
    assert "used for the first time" in cause.title
    assert "934 ms in 45 calls, 20.7 ms each, 99.8 % of the host's time" in cause.saw
    assert "The device was busy for 195 µs in all" in cause.saw
    assert "schedule(wait=1" in cause.fix


def test_cpp_does_not_help_what_is_in_calls_of_cuda() -> None:
    cpp = said(first_use(), "Would C++ help?")
    assert cpp.title.startswith("Would C++ help? No: it could save 0.2 %")
    assert "934 ms (99.8 %) are in calls of CUDA" in cpp.saw


def test_launches_beside_a_busy_device_may_wait_for_a_full_queue() -> None:
    found = result(host_row("cudaLaunchKernel", 100, 900), kernel("gemm", 100, 890), host=905 * MS, device=890 * MS)
    assert "first use, or a full launch queue" in found.said[0].title
    assert "This table does not say which" in found.said[0].saw


def test_a_row_of_a_full_queue_says_that_launches_wait_for_the_device() -> None:
    full = TableRow("Command Buffer Full", 500, 400 * MS, 400 * MS, 80 * MS, 80 * MS)
    rows = (host_row("cudaLaunchKernel", 2_000, 500), full, kernel("gemm", 2_000, 950))
    found = result(host_row("aten::mm", 2_000, 30), *rows, host=930 * MS, device=950 * MS)
    causes = [each for each in found.said if each.kind == "cause"]
    assert [each.title for each in causes] == [
        "The launch queue is full, so launches wait for the device: back-pressure, not a problem"
    ]
    assert "Command Buffer Full (400 ms in 500 calls): 43.0 % of the host's time" in causes[0].saw
    assert said(found, "Would C++ help?").title.startswith("Would C++ help? No: it could save 3.2 %")
    assert said(found, "device's time went").saw == "gemm 950 ms (100 %)"


def test_a_short_wait_for_the_queue_is_no_cause() -> None:
    rows = (host_row("aten::mm", 100, 90), host_row("Command Buffer Full", 2, 3), kernel("gemm", 100, 50))
    assert "launch queue" not in titles(result(*rows, host=93 * MS, device=50 * MS))


def test_usual_launches_are_no_cause_and_host_or_device_is_not_known() -> None:
    rows = (host_row("aten::mm", 1_000, 9), host_row("cudaLaunchKernel", 1_000, 6), kernel("gemm", 1_000, 20))
    found = result(*rows, host=15 * MS, device=20 * MS)
    assert [each.kind for each in found.said if each.kind == "cause"] == []
    assert said(found, "Whether the host or the device sets the pace").kind == "unknown"
    assert "does not say what limits the run" in found.summary
    assert "Would C++ help? Perhaps: it could save 60.0 %" in titles(found)


def test_an_old_table_does_not_say_whether_cpp_helps() -> None:
    row = TableRow("conv2d", 9, 5 * MS, 6 * MS, None, 7 * MS)
    found = result(row, host=5 * MS, device=7 * MS)
    assert said(found, "Would C++ help?").kind == "unknown"
    assert any("count the device's time of a nested call twice" in note for note in found.notes)


def test_waits_pageable_copies_and_data_loading_are_named() -> None:
    rows = (
        host_row("cudaStreamSynchronize", 12, 40),
        host_row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 30),
        host_row("Runtime Triggered Module Loading", 3, 20),
        kernel("Memcpy HtoD (Pageable -> Device)", 12, 10),
        kernel("gemm", 12, 50),
    )
    found = result(*rows, host=100 * MS, device=60 * MS)
    assert "40.0 ms in 12 calls): 40.0 % of the host's time" in said(found, "waits for the device").saw
    assert "16.7 % of the device's time" in said(found, "pageable memory").saw
    assert "30.0 % of the host's time" in said(found, "loads data").saw
    assert "20.0 % of the host's time" in said(found, "loaded at their first use").saw
    assert "gemm 50.0 ms (83.3 %); Memcpy HtoD" in said(found, "device's time went").saw


def test_a_table_of_the_host_alone_says_that_the_device_is_missing() -> None:
    found = result(host_row("aten::mm", 5, 3), host=3 * MS, device=None)
    assert "ProfilerActivity.CUDA" in said(found, "What the device did").saw
    assert found.totals.device_ns is None


def test_what_was_not_read_is_told() -> None:
    found = result(host_row("aten::mm", 5, 3), host=30 * MS, unread=4, more=2)
    assert "4 lines among the rows could not be read" in found.notes
    assert "only the first table was read: 2 more in the file" in found.notes
    assert any("27.0 ms of the host's time are not in the table" in note for note in found.notes)
    assert "the totals below the table are missing" in " ".join(result(host_row("aten::mm", 5, 3)).notes)
