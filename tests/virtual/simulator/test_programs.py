"""What programs are told by the simulator, each in a process of its own."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"


@functools.cache
def facts(program: str, *arguments: str, settings: str = "") -> dict[str, Any]:
    """What `programs/PROGRAM.py` printed in its last line, with those settings of the allocator; it is run once."""
    done = run(program, *arguments, settings=settings)
    assert done.returncode == 0, done.stderr[-4000:]
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def run(program: str, *arguments: str, settings: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unstall.virtual", str(PROGRAMS / f"{program}.py"), *arguments]
    environment = os.environ | {"PYTORCH_ALLOC_CONF": settings}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


@pytest.mark.slow
def test_every_thread_has_a_clock_of_its_own_by_which_it_sleeps_and_asks_for_events() -> None:
    read = facts("threads")
    assert read["slept"] == pytest.approx(0.5, abs=1e-3)
    assert read["polls"] == 4
    assert 0 <= read["begins_after"] < 1e-3
    assert read["done_at_once"] is False
    assert read["done_after_its_sleep"] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "settings"),
    [
        ("65", ""),
        ("65", "roundup_power2_divisions:2"),
        ("3", "large_segment_size_mb:64"),
        ("11", "expandable_segments:True"),
        ("0.4", ""),
    ],
)
def test_a_device_is_full_when_no_more_fits_and_every_request_counts_once(size: str, settings: str) -> None:
    read = facts("full", size, settings=settings)
    assert read["refused"]
    assert read["ooms"] == 1
    assert read["reserved_mib"] <= 1_000 + 20 * ("expandable" in settings)  # its last page, as torch reckons it
    assert read["claimed_mib"] >= 600
    assert read["allocated_at_least"]
    assert read["counted"]
    assert read["counted_again"] == 1


@pytest.mark.slow
def test_an_operator_whose_workspace_finds_no_room_raises() -> None:
    assert "CUDA out of memory. Tried to allocate 32.00 MiB" in facts("workspace")["told"]


@pytest.mark.slow
def test_a_convolution_whose_workspace_finds_no_room_runs_without_it() -> None:
    read = facts("convolution")
    assert read["workspace"] > 100 << 20
    assert "CUDA out of memory. Tried to allocate" in read["told"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["queries", "launches"])
def test_alarms_in_the_midst_of_the_simulation_are_raised_as_themselves(how: str) -> None:
    read = facts("alarms", how)
    assert read["ends"] == {"Alarm: as asked": 8}
    assert read["done"]


@pytest.mark.slow
def test_settings_that_torch_would_not_take_are_named_before_torch_is_imported() -> None:
    done = run("workspace", settings="foo:1")
    assert done.returncode != 0
    assert done.stderr == "unstall: PYTORCH_ALLOC_CONF=foo:1: allocator settings: unrecognized key 'foo'\n"


def test_a_refused_request_holds_nothing_of_the_function_that_made_it() -> None:
    assert facts("refused") == {"refused": True, "held": 0}


@pytest.mark.slow
def test_calls_within_an_annotation_are_at_their_own_lines() -> None:
    places = facts("annotated")
    assert places["MARK_BEGIN"] == ["12 in work"]
    assert places["FREE"][0] == "15 in work"
    assert places["SYNC_DEVICE"] == ["17 in work"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "end"), [("record_function", "mark"), ("nvtx", "nvtx")])
def test_a_range_costs_its_two_ends_and_the_bytecode_of_the_program_itself(kind: str, end: str) -> None:
    """torch's Python for ranges is part of what was measured for their ends, so it does not count again."""
    told = facts("annotated")
    ends, bytecode = 2 * told["host"][end], told["host"]["bytecode"]

    assert ends <= told["ns"][kind] < ends + 150 * bytecode


@pytest.mark.slow
def test_a_kernel_reads_memory_of_the_host_at_the_rate_of_a_copy() -> None:
    told = facts("mapped")

    assert told["value"] == 7
    assert told["mapped ns"] == pytest.approx(told["copy ns"], rel=0.05)
    assert told["mapped ns"] > 10 * told["own ns"]
