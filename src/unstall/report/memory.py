"""The part of the report of `unstall explain` that is about device memory: the bytes allocated and
reserved over time, and the source lines whose tensors hold them.
"""

from __future__ import annotations

from unstall.document.document import Area, Block, Column, Prose, Span, Table, words
from unstall.figures import duration, listed, share, size
from unstall.report.wording import brief_place, row
from unstall.result import DeviceMemory, Result

_MUCH = 0.1  # of the peak
_APART = 0.01  # of the time that is drawn
_UNKNOWN = "allocated before the recording, or by no known line"


def memory_blocks(result: Result) -> list[Block]:
    """Returns a picture and a table of the memory of one device: the device with the highest peak
    of allocated memory.

    A sentence gives the peaks of the other devices. Returns [] if single allocations were not
    recorded.
    """
    if not result.memory:
        return []
    shown = max(result.memory, key=lambda each: each.allocated_bytes)
    others = [f"{size(each.allocated_bytes)} on device {each.device}" for each in result.memory if each is not shown]
    told = [f"Allocated at the peaks of other devices: {listed(others)}."] if others else []
    if result.reserved and shown.reserved_bytes is not None and result.reserved.bytes > shown.reserved_bytes:
        told.append(f"Up to {size(result.reserved.bytes)} was reserved before this part of the run.")
    if _MUCH * shown.allocated_bytes < shown.unknown_bytes:
        start = "run with --after 0" if result.source.simulated else "record from the program's start on"
        told.append(f"To see more of the lines, {start}.")
    notes = [Prose(tuple(words(Span(text, "dim")) for text in told), small=True)] if told else []
    return [_area(result, shown), _lines(shown), *notes]


def _area(result: Result, memory: DeviceMemory) -> Area:
    of = f" of device {memory.device}" if len(result.memory) > 1 or memory.device else ""
    length_ns, peak_ns = memory.end_ns - memory.start_ns, memory.peak_ns - memory.start_ns
    begins_ns = memory.start_ns - result.steps.start_ns
    if abs(begins_ns) < _APART * length_ns:
        begins_ns = 0
    since = f", from the start of {'the run' if result.steps.found_by == 'whole' else 'the first step'}"
    return Area(
        title=words(f"Memory{of} over time{since if begins_ns else ''}"),
        front=memory.allocated,
        behind=memory.reserved,
        names=("allocated", "reserved, not allocated"),
        most=size(max(*memory.allocated, *memory.reserved)),
        ends=(duration(begins_ns), duration(begins_ns + length_ns)),
        mark=(
            peak_ns / max(length_ns, 1),
            words(f"peak: {size(memory.allocated_bytes)} allocated, at {duration(begins_ns + peak_ns)}"),
        ),
    )


def _lines(memory: DeviceMemory) -> Table:
    whole = memory.allocated_bytes
    rows = [
        row(brief_place(line.where), size(line.bytes), share(line.bytes, whole), f"{line.count:,}")
        for line in memory.lines
    ]
    if unknown := memory.unknown_bytes:
        more = sum(line.bytes >= unknown for line in memory.lines)
        rows.insert(more, row(words(Span(_UNKNOWN, "dim")), size(unknown), share(unknown, whole), ""))
    columns = Column("bytes"), Column("share"), Column("blocks", extra=True)
    return Table(words("Lines that hold it at the peak"), columns, tuple(rows), limited=True, fold="closed")
