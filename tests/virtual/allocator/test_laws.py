"""Laws of the caching allocator, on any sequence of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from profiles import examples
from virtual.allocator.invented_requests import CALLS, MIB, SETTINGS, Call, Program


def law(test: Callable[..., None]) -> Any:
    """A test of any calls, under each setting."""
    return pytest.mark.parametrize("configuration", SETTINGS)(examples(30)(given(calls=CALLS)(test)))


def ran(configuration: str, calls: list[Call]) -> Program:
    program = Program(configuration)
    program.run(calls)
    return program


def segments(program: Program) -> list[Any]:
    return program.allocator.memory_snapshot()


def blocks(program: Program) -> list[Any]:
    return [block for segment in segments(program) for block in segment["blocks"]]


@law
def test_blocks_tile_their_segments_and_segments_never_overlap(configuration: str, calls: list[Call]) -> None:
    program = ran(configuration, calls)
    found = segments(program)
    for segment in found:
        ends = [block["address"] + block["size"] for block in segment["blocks"]]
        assert [block["address"] for block in segment["blocks"]] == [segment["address"], *ends[:-1]]
        assert ends[-1] == segment["address"] + segment["total_size"]
    assert all(a["address"] + a["total_size"] <= b["address"] for a, b in pairwise(found))
    held = [(block.address, block.size) for block in program.live]
    assert sorted(held) == [(b["address"], b["size"]) for b in blocks(program) if b["state"] == "active_allocated"]


@law
def test_free_neighbours_are_always_merged(configuration: str, calls: list[Call]) -> None:
    for segment in segments(ran(configuration, calls)):
        states = [block["state"] for block in segment["blocks"]]
        assert ("inactive", "inactive") not in set(pairwise(states))


@law
def test_statistics_are_sums_over_the_blocks(configuration: str, calls: list[Call]) -> None:
    program = ran(configuration, calls)
    stats = program.allocator.memory_stats()
    for pool, kinds in (("all", ("small", "large")), ("small_pool", ("small",)), ("large_pool", ("large",))):
        here = [segment for segment in segments(program) if segment["segment_type"] in kinds]
        fixed = [segment for segment in here if not segment["is_expandable"]]
        inside = [block for segment in here for block in segment["blocks"]]
        allocated = [block["size"] for block in inside if block["state"] == "active_allocated"]
        active = [block for block in inside if block["state"] != "inactive"]
        rests = [
            block["size"]
            for segment in fixed
            for block in segment["blocks"]
            if len(segment["blocks"]) > 1 and block["state"] == "inactive"
        ]
        assert stats[f"reserved_bytes.{pool}.current"] == sum(segment["total_size"] for segment in here)
        assert stats[f"segment.{pool}.current"] == len(fixed)
        assert stats[f"allocated_bytes.{pool}.current"] == sum(allocated)
        assert stats[f"allocation.{pool}.current"] == len(allocated)
        assert stats[f"active_bytes.{pool}.current"] == sum(block["size"] for block in active)
        assert stats[f"active.{pool}.current"] == len(active)
        assert stats[f"requested_bytes.{pool}.current"] == sum(block["requested_size"] for block in active)
        assert stats[f"inactive_split_bytes.{pool}.current"] == sum(rests)
        assert stats[f"inactive_split.{pool}.current"] == len(rests)
    free, total = program.allocator.mem_get_info()
    assert free + stats["reserved_bytes.all.current"] == total


@law
def test_a_peak_never_falls_and_current_is_what_came_less_what_went(configuration: str, calls: list[Call]) -> None:
    program = Program(configuration)
    before = program.allocator.memory_stats()
    for call in calls:
        program.do(call)
        after = program.allocator.memory_stats()
        for key in (key.removesuffix(".peak") for key in after if key.endswith(".peak")):
            assert max(before[f"{key}.peak"], after[f"{key}.current"]) <= after[f"{key}.peak"]
            assert after[f"{key}.current"] == after[f"{key}.allocated"] - after[f"{key}.freed"]
        before = after


@law
def test_freeing_all_and_emptying_the_cache_gives_everything_back(configuration: str, calls: list[Call]) -> None:
    program = ran(configuration, calls)
    program.let_go()
    program.allocator.empty_cache()
    stats = program.allocator.memory_stats()
    assert {key for key, value in stats.items() if key.endswith(".current") and value} == set()
    assert stats["num_device_alloc"] == stats["num_device_free"] or "expandable" in configuration
    assert program.allocator.mem_get_info() == (program.allocator.mem_get_info()[1],) * 2
    assert segments(program) == []


def foreseen_and_called(program: Program, calls: list[Call]) -> Iterator[tuple[str, str]]:
    """What was foreseen of each request, and what it called. "full": it failed."""
    for call in calls:
        before, held = program.allocator.memory_stats(), len(program.live)
        foreseen = program.allocator.foresee(call.size, call.stream, program.events.query)
        program.do(call)
        after = program.allocator.memory_stats()
        taken, freed = (after[key] - before[key] for key in ("num_device_alloc", "num_device_free"))
        if call.action == "malloc":
            is_full = len(program.live) == held
            yield foreseen, "full" if is_full else "free" if freed else "malloc" if taken else ""


@law
def test_no_driver_call_of_a_request_is_unforeseen(configuration: str, calls: list[Call]) -> None:
    assert [each for each in foreseen_and_called(Program(configuration), calls) if each[1] and not each[0]] == []


@given(calls=CALLS)
def test_with_default_settings_exactly_the_driver_calls_are_foreseen(calls: list[Call]) -> None:
    for foreseen, called in foreseen_and_called(Program(""), calls):
        assert foreseen == called or (called == "full" and foreseen)


@law
def test_emptying_the_cache_calls_the_driver_if_that_is_foreseen(configuration: str, calls: list[Call]) -> None:
    program = ran(configuration, calls)
    before = program.allocator.memory_stats()["num_device_free"]
    foreseen = program.allocator.waits_to_empty()
    program.allocator.empty_cache()
    assert foreseen or program.allocator.memory_stats()["num_device_free"] == before


@law
def test_requests_that_the_largest_cached_block_holds_need_no_driver(configuration: str, calls: list[Call]) -> None:
    """As `is_cached` of shim/waits.cpp goes on: a large request uses up to 1 MiB more than it asks for."""
    program = Program(configuration)
    left = {stream: [0, 0] for stream in range(3)}
    for number, call in enumerate(calls):
        if call.action == "empty_cache":
            left = {stream: [0, 0] for stream in range(3)}
        elif number % 10 == 0:
            left[call.stream] = list(program.allocator.largest_cached(call.stream))
        before = program.allocator.memory_stats()["num_device_alloc"]
        program.do(call)
        if call.action == "malloc":
            size = -(-call.size // 512) * 512
            is_large = size > MIB
            if size <= left[call.stream][is_large]:
                left[call.stream][is_large] -= size + (MIB if is_large else 0)
                assert program.allocator.memory_stats()["num_device_alloc"] == before
            elif len(program.live) and program.allocator.memory_stats()["num_device_free"]:
                left = {stream: [0, 0] for stream in range(3)}  # it may have freed what was cached
