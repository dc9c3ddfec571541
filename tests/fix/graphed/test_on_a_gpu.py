"""`graphed` on a virtual H200, and on a real GPU where there is one: one program's facts."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = Path(__file__).parent / "programs" / "on_a_gpu.py"
_VIRTUAL = pytest.param(("-m", "unstall", "run", "--gpu", "h200", "--quiet"), id="virtual", marks=pytest.mark.slow)
_REAL = pytest.param((), id="real", marks=pytest.mark.gpu)


@functools.cache
def _ran(launcher: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *launcher, str(_PROGRAM)]
    with tempfile.TemporaryDirectory() as folder:  # where its trace is written
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=folder)


def _facts(launcher: tuple[str, ...]) -> dict[str, Any]:
    done = _ran(launcher)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(params=[_VIRTUAL, _REAL])
def facts(request: pytest.FixtureRequest) -> dict[str, Any]:
    return _facts(request.param)


def test_branches_give_eagers_bits_and_are_faster(facts: dict[str, Any]) -> None:
    same, hits, faster, has_memory, saved = facts["branches"]
    assert (same, hits, faster, has_memory) == ([True] * 8, 6, True, True)
    assert saved >= 6 * 8


def test_a_training_step_has_eagers_losses(facts: dict[str, Any]) -> None:
    assert facts["training"] == [True, 18]


def test_autograd_goes_through_a_module(facts: dict[str, Any]) -> None:
    assert facts["module_through_autograd"] == [[True] * 8, 6]


def test_a_replays_backward_runs_on_the_stream_that_gradients_are_added_on(facts: dict[str, Any]) -> None:
    """Otherwise the host makes one stream wait for the other at each parameter."""
    assert facts["results_that_outlive_the_next_call"] == [[True] * 8, 6]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("item", "the host reads a value from the device and waits for it"),
        ("to_cpu", "a copy to CPU memory waits for the device; return the tensor and copy it after the call"),
        ("handed_over", "a copy to CPU memory would be into the memory of one call; return the tensor and copy it"),
        ("measured", "a copy to CPU memory would be into the memory of one call; return the tensor and copy it"),
        ("from_cpu", "a copy from CPU memory would be of the memory of one call"),
        ("mask", "how large its result is depends on values"),
        ("synchronize", "synchronize() waits for the device"),
        ("host_scalar", "a CPU tensor takes part"),
    ],
)
def test_what_cannot_be_captured_is_named_by_its_line(facts: dict[str, Any], function: str, reason: str) -> None:
    (message,) = facts["refused"][function]
    lines = _PROGRAM.read_text("utf-8").splitlines()
    first = lines.index(next(line for line in lines if line.startswith(f"def {function}("))) + 1
    assert any(f"on_a_gpu.py:{line} ({function}): {reason}" in message for line in (first + 1, first + 2))


def test_a_call_that_is_looked_at_in_a_capture_leaves_its_own_gradients(facts: dict[str, Any]) -> None:
    assert facts["gradients_beside_a_wait_that_a_capture_leaves_out"] == [[True] * 5, 3]


def test_an_optimizer_that_counts_on_the_cpu_is_told_what_to_do(facts: dict[str, Any]) -> None:
    assert any("make it with capturable=True" in message for message in facts["optimizer_on_the_host"])


def test_an_averaged_model_that_counts_on_the_cpu_is_no_optimizer(facts: dict[str, Any]) -> None:
    assert any(
        "the averaged model counts its updates on the CPU" in message for message in facts["average_on_the_host"]
    )
    assert not any("capturable" in message for message in facts["average_on_the_host"])


def test_after_a_capture_that_failed_all_goes_on(facts: dict[str, Any]) -> None:
    (message,), works, hits, refusals = facts["a_wait_that_only_the_capture_finds"]
    assert "could not be captured" in message
    assert (works, hits, refusals) == (True, 2, [])


def test_cleared_workspaces_are_no_memory_of_a_graphs(facts: dict[str, Any]) -> None:
    assert facts["workspaces_that_are_cleared"] == [True, [True] * 4, True]
