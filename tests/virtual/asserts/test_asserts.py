"""Device-side assertions: wrong values fail where the device works on them, and the program is told where it waits."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
CUDA_SAYS = """CUDA error: device-side assert triggered
Search for `cudaErrorAssert' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more \
information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
TOLD = "AcceleratorError"
DEVICES = 16
"""As many as a machine has; each fails once."""
SHAPES = {
    "embedding": [2, 5],
    "index": [2, 5],
    "index_put_": [4, 5],
    "index_put accumulating": [4, 5],
    "gather": [1, 1],
    "index_select": [4, 2],
    "take": [1],
    "cross_entropy": [],
    "nll_loss": [],
    "one_hot": [2, 3],
    "multinomial": [1],
    "embedding_bag": [1, 5],
    "half": [1, 1],
    "assert_async": None,
}


def run(
    program: str, *options: str, arguments: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unstall.virtual", *options, f"{program}.py", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=PROGRAMS,
        env={**os.environ, **environment},
    )


@functools.cache
def facts(program: str, devices: int, *arguments: str) -> dict[str, Any]:
    done = run(program, "--gpu", f"h200:{devices}", arguments=arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def cases() -> dict[str, Any]:
    return {**facts("cases", DEVICES, "0"), **facts("cases", DEVICES, str(DEVICES))}


def test_no_operator_raises_at_its_call_and_each_is_told_at_the_wait() -> None:
    assert {name: case for name, case in cases().items() if case.get("type") != TOLD or not case["is_runtime"]} == {}


def test_the_error_is_cudas_and_names_the_operator_and_its_line() -> None:
    line = 1 + (PROGRAMS / "cases.py").read_text().splitlines().index(
        '        "embedding": lambda d: functional.embedding(long(BAD).to(d), x.to(d)),'
    )
    assert cases()["embedding"]["said"] == (
        f"{CUDA_SAYS}unstall: the assert is of aten::embedding, launched at cases.py:{line} in "
        "cases.<locals>.<lambda> (index out of range in self)"
    )


@pytest.mark.parametrize("name", SHAPES)
def test_the_call_gives_what_a_right_one_would_in_shape(name: str) -> None:
    assert cases()[name]["shape"] == SHAPES[name]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("event before", "fine"),
        ("event after", TOLD),
        ("pinned copy", "fine"),
        ("launch", "fine"),
        ("copy into memory that torch pins", "fine"),
        ("pageable copy", TOLD),
        ("item", TOLD),
        ("item again", TOLD),
        ("empty", TOLD),
        ("upload", TOLD),
        ("record", TOLD),
        ("metadata", "fine"),
        ("other device", "fine"),
        ("nonzero", TOLD),
        ("replay", 1.0),
        ("wrong replay", "fine"),
        ("after replay", TOLD),
        ("backward", "fine"),
        ("gradient", [4, 5]),
        ("after backward", TOLD),
        ("query", [TOLD]),
    ],
)
def test_it_is_told_by_what_waits_and_then_by_all(what: str, expected: object) -> None:
    assert facts("surfacing", 9)[what] == expected


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("wrong dimension", "IndexError"),
        ("too many indices", "IndexError"),
        ("wrong dtype", "RuntimeError"),
        ("fine still", "fine"),
    ],
)
def test_what_shapes_and_dtypes_are_wrong_for_is_raised_at_the_call(what: str, expected: str) -> None:
    assert facts("surfacing", 9)[what] == expected


def test_a_program_ends_by_the_traceback_of_the_wait() -> None:
    done = run("train")
    assert done.returncode == 1
    assert done.stdout == "launched\n"
    assert 'train.py", line 17, in <module>\n    print(loss.item())' in done.stderr
    assert "torch.AcceleratorError: CUDA error: device-side assert triggered" in done.stderr
    assert "the assert is of aten::embedding, launched at train.py:10 in Model.forward (index" in done.stderr


def test_launches_that_block_raise_at_their_call() -> None:
    done = run("train", CUDA_LAUNCH_BLOCKING="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert 'train.py", line 10, in forward' in done.stderr
    assert "might be asynchronously reported" not in done.stderr


def test_skipped_numerics_raise_at_the_call_what_they_compute() -> None:
    done = run("train", "--numerics", "skip")
    assert done.returncode == 1
    assert "IndexError: index out of range in self" in done.stderr
