"""Tables of torch's profiler, as people paste them."""

from __future__ import annotations

import re
import textwrap
import time
from pathlib import Path

import pytest

from unstall.errors import TraceError
from unstall.read.profiler_table import ProfilerTable, TableRow, is_profiler_table, read_profiler_table
from unstall.timeline.limits import MOST_TABLE_BYTES

HEAD = ("Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg")
DEVICE = ("Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg")
CONV = ("aten::conv2d", "0.01%", "82.000us", "99.95%", "935.120ms", "103.902ms")
LAUNCH = ("cudaLaunchKernel", "99.80%", "933.703ms", "99.80%", "933.703ms", "20.749ms")
KERNEL = ("void at::native::add<float, at...", "0.00%", "0.000us", "0.00%", "0.000us", "0.000us")
ROWS = (
    (*CONV, "0.000us", "0.00%", "150.000us", "16.667us", "9"),
    (*LAUNCH, "0.000us", "0.00%", "0.000us", "0.000us", "45"),
    (*KERNEL, "195.000us", "100.00%", "195.000us", "4.333us", "45"),
)
TOTALS = ("Self CPU time total: 935.560ms", "Self CUDA time total: 195.000us")
WANTED = (
    TableRow("aten::conv2d", 9, 82_000, 935_120_000, 0, 150_000),
    TableRow("cudaLaunchKernel", 45, 933_703_000, 933_703_000, 0, 0),
    TableRow("void at::native::add<float, at...", 45, 0, 0, 195_000, 195_000),
)


def table(head: tuple[str, ...] = (*HEAD, *DEVICE, "# of Calls"), rows: object = ROWS, width: int = 12) -> str:
    """As torch prints it."""
    rule = "  ".join("-" * (40 if number == 0 else width) for number in range(len(head)))
    lines = ["  ".join(f"{cell:>{40 if i == 0 else width}}" for i, cell in enumerate(row)) for row in (head, *rows)]  # type: ignore[misc]
    return "\n".join((rule, lines[0], rule, *lines[1:], rule, *TOTALS, ""))


def read(tmp_path: Path, text: str | bytes) -> ProfilerTable:
    path = tmp_path / "table.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert is_profiler_table(path)
    return read_profiler_table(path)


def changed(form: str) -> str:
    lines = table().splitlines()
    if form == "quoted":
        return "\n".join(f"> {line}" for line in ["My profile:", *lines])
    if form == "single spaces":
        return "\n".join(" ".join(line.split()) for line in lines)
    if form == "markdown":
        cells = (re.split(r"\s{2,}", line.strip()) for line in lines)
        return "\n".join(f"| {' | '.join(row)} |" for row in cells)
    if form == "CRLF":
        return "\r\n".join(lines)
    if form == "indented":
        return "\n".join(f"        {line}" for line in lines)
    return "\n".join(textwrap.fill(line, int(form)) for line in lines)


@pytest.mark.parametrize(
    "form", ["quoted", "single spaces", "markdown", "CRLF", "indented", "60", "80", "100", "120", "160"]
)
def test_a_table_reads_the_same_however_it_was_pasted(tmp_path: Path, form: str) -> None:
    found = read(tmp_path, changed(form))
    assert found.rows == WANTED
    assert (found.host_total_ns, found.device_total_ns) == (935.56e6, 195e3)
    assert (found.device, found.unread, found.more) == ("CUDA", 0, 0)


def test_columns_of_torch_1_are_read(tmp_path: Path) -> None:
    head = (
        *("Name", "Self CPU total %", "Self CPU total", "CPU total %", "CPU total", "CPU time avg"),
        *("CUDA total %", "CUDA total", "CUDA time avg", "Number of Calls"),
    )
    row = ("matmul", "0.17%", "890.805us", "99.05%", "523.401ms", "5.234ms", "49.91%", "791.184ms", "7.912ms", "100")
    found = read(tmp_path, table(head, (row,), width=15))
    assert found.rows == (TableRow("matmul", 100, 890_805, 523_401_000, None, 791_184_000),)


def test_a_table_without_a_device_has_none(tmp_path: Path) -> None:
    found = read(tmp_path, table((*HEAD, "# of Calls"), ((*CONV, "9"),)))
    assert found.device is None
    assert found.rows == (TableRow("aten::conv2d", 9, 82_000, 935_120_000, None, None),)


@pytest.mark.parametrize("device", ["XPU", "HPU", "PRIVATEUSE1", "MTIA"])
def test_other_devices_have_their_names(tmp_path: Path, device: str) -> None:
    found = read(tmp_path, table().replace("CUDA", device))
    assert (found.device, found.device_total_ns, found.rows[2].self_device_ns) == (device, 195e3, 195e3)


def test_memory_shapes_flops_and_stacks_are_passed_over(tmp_path: Path) -> None:
    head = (
        *(*HEAD, *DEVICE, "CPU Mem", "Self CPU Mem", "CUDA Mem", "Self CUDA Mem", "# of Calls", "Input Shapes"),
        *("Source Location", "Total KFLOPs"),
    )
    more = ("0 B", "-8 B", "5.00 GB", "-1.20 Mb", "10", "[[5, 3, 2], []]", "--", "train.py(12): step")
    rows = [(*row[:-1], *more) for row in ROWS]
    found = read(tmp_path, table(head, rows).replace("\n-", "\n" + " " * 90 + "model.py(3): forward\n-", 1))
    assert [row.calls for row in found.rows] == [10, 10, 10]
    assert found.rows[1].self_host_ns == 933.703e6


def test_overload_names_are_no_part_of_the_name(tmp_path: Path) -> None:
    head = ("Name", "Overload Name", *HEAD[1:], "# of Calls")
    found = read(tmp_path, table(head, [("aten::add", "Tensor", *CONV[1:], "9"), ("aten::mm", "", *CONV[1:], "9")]))
    assert [row.name for row in found.rows] == ["aten::add", "aten::mm"]


def test_nan_shares_and_other_units_are_read(tmp_path: Path) -> None:
    row = ("aten::to", "NaN", "1.5s", "0", "12ns", "3.000μs", "2.0µs", "nan", "1,500.5ms", "0.000us", "1,234")
    found = read(tmp_path, table(rows=(row,)))
    assert found.rows == (TableRow("aten::to", 1234, 1_500_000_000, 12, 2_000, 1_500_500_000),)


def test_lines_that_are_no_rows_are_counted_and_a_second_table_is_told(tmp_path: Path) -> None:
    text = table().replace("\n" + " " * 24 + "cudaLaunch", "\nand here is more\n" + " " * 24 + "cudaLaunch")
    found = read(tmp_path, text + table())
    assert (found.rows, found.unread, found.more) == (WANTED, 1, 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\n".join(table().splitlines()[:3]), "none of its rows can be read"),
        ((table() + "x" * MOST_TABLE_BYTES), "longer than 4 MiB"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" + table().encode(),
        b'{"traceEvents": []}',
        b"Name, age\nAda, 36\n",
        b"Name Self CPU\n",
        b"\xff" * 99,
    ],
)
def test_other_files_are_no_tables(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    assert not is_profiler_table(tmp_path / "other")


@pytest.mark.parametrize("unit", ["1 ", "9.9% ", "5.0us ", "a", "Name Self CPU % ", "| ", "12 Kb "])
def test_a_hostile_text_takes_no_longer_than_its_size(tmp_path: Path, unit: str) -> None:
    line = "x " + unit * (3_900 // len(unit))
    start = time.process_time()
    with pytest.raises(TraceError):
        read(tmp_path, "\n".join([*table().splitlines()[:3], *[line] * 200]))
    assert time.process_time() - start < 20


def test_control_characters_do_not_reach_the_report(tmp_path: Path) -> None:
    found = read(tmp_path, table().replace("aten::conv2d", "aten::\x1b[31mevil"))
    assert found.rows[0].name == "aten::[31mevil"


@pytest.mark.parametrize("number", ["9" * 400, "1.2.3", "-5.0"])
def test_times_that_are_none_are_zero(tmp_path: Path, number: str) -> None:
    found = read(tmp_path, table().replace("82.000us", f"{number}us"))
    assert found.rows[0].self_host_ns == 0
