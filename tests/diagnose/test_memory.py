"""Which lines hold device memory, and how much is allocated and reserved over time."""

from __future__ import annotations

from pathlib import Path

import msgspec
from report.rendered import as_text
from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.diagnose.memory import INTERVALS
from unstall.figures import duration
from unstall.read import load
from unstall.result import DeviceMemory, Result

MIB = 1 << 20
Change = tuple[int, int, int]  # line, address, MiB; negative if freed


def _run(
    tmp_path: Path, *changes: Change, before: int = 0, device: int = 0, addresses: bool = True, first_us: float = 0
) -> Result:
    """A step in which lines allocate and free blocks, after `first_us` of work; `before` MiB are allocated already.
    Twice as much is reserved.
    """
    trace = TraceBuilder()
    events, total, most = [], before, before
    with trace.step():
        trace.work(first_us)
        for line, address, size in changes:
            with trace.frame("train.py", line, f"at_{line}"), trace.op("aten::empty"):
                total += size
                most = max(most, total)
                args = {"Device Type": 1, "Device Id": device, "Bytes": size * MIB, "Total Allocated": total * MIB}
                args |= {"Total Reserved": 2 * most * MIB} | ({"Addr": address} if addresses else {})
                events.append((trace.now, args))
                trace.work(10)
        trace.launch()
    document = trace.document()
    document["traceEvents"] += [
        {"ph": "i", "name": "[memory]", "pid": 400, "tid": 400, "s": "t", "args": args}
        | {"ts": msgspec.Raw(b"%d.%03d" % divmod(time, 1000))}
        for time, args in events
    ]
    path = tmp_path / "made.json"
    path.write_bytes(msgspec.json.encode(document))
    return explain(load(path)).result


def _held(memory: DeviceMemory) -> list[tuple[int | None, int, int]]:
    return [(line.where.line, line.bytes // MIB, line.count) for line in memory.lines]


def test_the_lines_that_hold_memory_are_those_of_the_blocks_that_live_at_the_peak(tmp_path: Path) -> None:
    (memory,) = _run(tmp_path, (1, 64, 8), (2, 32, 4), (9, 64, -8), (2, 64, 6), (3, 16, 5), (9, 32, -4)).memory

    assert (memory.allocated_bytes, memory.reserved_bytes) == (15 * MIB, 30 * MIB)
    assert _held(memory) == [(2, 10, 2), (3, 5, 1)]
    assert memory.unknown_bytes == 0


def test_memory_from_before_the_recording_belongs_to_no_line(tmp_path: Path) -> None:
    (memory,) = _run(tmp_path, (9, 64, -3), (1, 64, 8), before=10).memory

    assert (_held(memory), memory.unknown_bytes) == ([(1, 8, 1)], 7 * MIB)


def test_without_addresses_no_line_is_named(tmp_path: Path) -> None:
    (memory,) = _run(tmp_path, (1, 64, 8), (2, 32, 4), addresses=False).memory

    assert (memory.lines, memory.unknown_bytes) == ((), 12 * MIB)


def test_over_time_the_lines_add_up_to_what_is_allocated_and_none_is_above_the_peak(tmp_path: Path) -> None:
    (memory,) = _run(tmp_path, (1, 64, 8), (2, 32, 4), (9, 64, -8), (2, 64, 6), (1, 16, 5), (9, 32, -4)).memory

    first, second = memory.lines
    assert len(memory.allocated) == INTERVALS
    assert tuple(a + b for a, b in zip(first.over_time, second.over_time, strict=True)) == memory.allocated
    assert max(memory.allocated) == memory.allocated_bytes
    assert memory.allocated[0] == 8 * MIB
    assert memory.allocated[-1] == 11 * MIB
    at = int(INTERVALS * (memory.peak_ns - memory.start_ns) / (memory.end_ns - memory.start_ns))
    assert memory.allocated[at] == memory.allocated_bytes


def test_a_report_draws_it_in_80_columns_and_names_the_lines(tmp_path: Path) -> None:
    text = as_text(_run(tmp_path, (1, 64, 8), (2, 32, 24), (9, 64, -8), before=32, device=1))

    assert "Memory of device 1 over time" in text
    assert "peak: 64.0 MiB allocated, at" in text
    assert "128 MiB ┤" in text
    lines = text.splitlines()
    assert any(line.startswith("train.py:2 def at_2") and "24.0 MiB    37.5 %" in line for line in lines)
    assert any("allocated before the recording" in line and "32.0 MiB    50.0 %" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_memory_of_no_known_line_stands_where_its_size_is(tmp_path: Path) -> None:
    """The first rows alone are shown."""
    text = as_text(_run(tmp_path, *((line, 16 * line, 2) for line in range(1, 15)), (20, 999, 40), before=32), top=3)
    shown = text.split("Lines that hold it")[1].splitlines()
    assert shown[1].startswith("train.py:20 def at_20")
    assert shown[2].startswith("allocated before the recording")


def test_the_times_are_those_of_the_run(tmp_path: Path) -> None:
    """The first step begins with what allocates nothing."""
    result = _run(tmp_path, (1, 64, 8), (2, 32, 4), first_us=40)
    (memory,) = result.memory
    begins, end = (time - result.steps.start_ns for time in (memory.start_ns, memory.end_ns))
    text = as_text(result)
    assert "Memory over time, from the start of the first step" in text
    (axis,) = (
        line.split() for line in text.splitlines() if line.startswith("         ") and line.split()[1:2] == ["µs"]
    )
    assert axis == [*duration(begins).split(), *duration(end).split()]
    assert f"at {duration(memory.peak_ns - result.steps.start_ns)}" in text


def test_a_report_without_recorded_allocations_says_nothing_of_memory(tmp_path: Path) -> None:
    result = _run(tmp_path)

    assert result.memory == ()
    assert "Memory" not in as_text(result)
