"""Which stacks blocks, segments and entries of the memory history have."""

from __future__ import annotations

from typing import Any

import pytest

from unstall.virtual.allocator.caching import CachingAllocator
from unstall.virtual.allocator.kept_stacks import Context, KeptStacks
from unstall.virtual.allocator.segments import TraceEntry

GIB, MIB = 1 << 30, 1 << 20
RESERVES, SHARES, FREES = 3, 5, 7


def _used(context: Context, settings: str = "") -> tuple[list[Any], list[TraceEntry]]:
    """Two blocks of one segment, of which the second is freed: the segments, and the history."""
    entries: list[TraceEntry] = []
    stacks = KeptStacks(context=context)
    allocator = CachingAllocator(GIB, settings, observer=entries.append, stacks=stacks)
    stacks.now = RESERVES
    allocator.malloc(MIB, 0)
    stacks.now = SHARES
    second = allocator.malloc(512, 0)
    stacks.now = FREES
    allocator.free(second)
    return allocator.memory_snapshot(), entries


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_blocks_and_segments_have_the_stack_that_allocated_them(settings: str) -> None:
    (segment,), _ = _used(Context.STATE, settings)
    assert segment["stack"] == RESERVES
    assert [block["stack"] for block in segment["blocks"]] == [RESERVES, -1]


def test_a_freed_block_that_another_stream_uses_keeps_its_stack() -> None:
    class NeverDone:
        def record(self, _stream: int) -> int:
            return 1

        def query(self, _event: int) -> bool:
            return False

        def synchronize(self, _event: int) -> None: ...

    stacks = KeptStacks(RESERVES, Context.ALL)
    allocator = CachingAllocator(GIB, stacks=stacks, events=NeverDone())
    block = allocator.malloc(MIB, 0)
    allocator.record_stream(block, 1)
    stacks.now = FREES
    allocator.free(block)
    (segment,) = allocator.memory_snapshot()
    blocks: Any = segment["blocks"]
    assert [(each["state"], each["stack"]) for each in blocks] == [("active_pending_free", RESERVES), ("inactive", -1)]


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (Context.NEVER, [-1, -1, -1, -1, -1]),
        (Context.STATE, [-1, -1, -1, -1, -1]),
        (Context.ALLOC, [RESERVES, RESERVES, SHARES, SHARES, SHARES]),
        (Context.ALL, [RESERVES, RESERVES, SHARES, FREES, FREES]),
    ],
)
def test_entries_have_their_own_stack_or_that_of_the_block_as_the_program_asked(
    context: Context, expected: list[int]
) -> None:
    _, entries = _used(context)
    assert [entry.action for entry in entries] == [
        *("segment_alloc", "alloc", "alloc", "free_requested", "free_completed")
    ]
    assert [entry.stack for entry in entries] == expected
