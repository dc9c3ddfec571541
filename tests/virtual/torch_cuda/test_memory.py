"""The caching allocator's figures in torch.cuda's forms."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from processes import succeeded
from virtual.allocator.recorded_requests import measured
from virtual.torch_cuda.running import HERE, facts

from unstall.virtual.torch_cuda.memory import nested, settings_of_snapshot

MIB = 1 << 20
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("memory", devices=2)


@slow
def test_no_figures_before_cuda_is_initialised(told: dict[str, Any]) -> None:
    assert told["before cuda"] == 0


@slow
def test_allocated_reserved_and_peak_follow_the_program(told: dict[str, Any]) -> None:
    assert told["sequence"] == [[3 * MIB, 20 * MIB], [0, 20 * MIB, 3 * MIB], [0, 0]]


@slow
def test_each_device_has_figures_of_its_own(told: dict[str, Any]) -> None:
    assert told["other device"] == [0, 512, True]


@slow
def test_raw_allocations_count(told: dict[str, Any]) -> None:
    assert told["raw"] == [1024, 0]
    assert told["raw of nobody"] == ["raises", "RuntimeError", "invalid device pointer: 0x3039"]


@slow
def test_the_device_s_free_memory_falls_by_whole_segments(told: dict[str, Any]) -> None:
    assert told["free bytes fall"] == [32 * MIB, 150_109_880_320, 32 * MIB]


@slow
def test_a_fraction_of_the_device_limits_the_process(told: dict[str, Any]) -> None:
    fraction, text = told["limited"]
    assert fraction == 0.001
    assert "143.16 MiB allowed" in text


@slow
def test_more_than_the_device_has_raises_torch_s_error(told: dict[str, Any]) -> None:
    raises, kind, text = told["too much"]
    assert (raises, kind) == ("raises", "OutOfMemoryError")
    assert text.startswith("CUDA out of memory. Tried to allocate 200.00 GiB. GPU 0 has a total capacity of 139.80 GiB")


@slow
def test_figures_come_in_all_of_torch_s_forms(told: dict[str, Any]) -> None:
    assert told["nested"] == ["allocated", "current", "freed", "peak"]
    assert told["summary"] == "|                  PyTorch CUDA memory summary, device ID 0                 |"
    assert told["accelerator"] is True
    assert told["backend"] == "native"
    assert "frames" in told["segments"][0]
    assert told["settings"] is False


@slow
@pytest.mark.parametrize(
    ("what", "name"),
    [("pool", "torch.cuda.MemPool"), ("own allocator", "torch.cuda.memory.CUDAPluggableAllocator")],
)
def test_other_allocators_are_refused_by_name(told: dict[str, Any], what: str, name: str) -> None:
    raises, kind, text = told[what]
    assert (raises, kind) == ("raises", "NotSupportedError")
    assert text.startswith(f"{name} is not supported by the virtual GPU")


@slow
def test_the_recorded_requests_give_the_recorded_figures() -> None:
    """The program that ran on an H200: every figure after every request is the real one's."""
    command = [sys.executable, str(HERE / "prelude.py"), "1", "real", str(HERE / "programs" / "requests.py")]
    ours, real = json.loads(succeeded(command).stdout), measured("allocator")
    assert {name: ours[name] for name in real} == real


def test_keys_with_dots_become_dicts_in_dicts() -> None:
    assert nested({"a.b.c": 1, "a.b.d": 2, "e": 3}) == {"a": {"b": {"c": 1, "d": 2}}, "e": 3}


def test_the_settings_of_a_snapshot_are_those_of_the_environment() -> None:
    settings = settings_of_snapshot("max_split_size_mb:64,roundup_power2_divisions:4,expandable_segments:True")
    assert settings["max_split_size"] == 64 * MIB
    assert settings["expandable_segments"] is True
    assert settings["roundup_power2_divisions"]["1"] == 4
    assert settings_of_snapshot("")["max_split_size"] == -1
