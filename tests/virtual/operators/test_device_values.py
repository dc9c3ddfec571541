"""numerics="device": values differ from the CPU's as a GPU's do, and are the same in each run."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from processes import succeeded

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
PRODUCTS = ("mm", "mm.out", "addmm_", "linear", "bmm", "baddbmm")
VECTORS = ("mv", "dot")
CONVOLUTIONS = ("convolution", "gradient of its input", "gradient of its weight")
SUMS = ("sum", "sum of rows", "sum of columns", "mean", "mean of rows", "norm", "softmax", "log_softmax", "layer norm")
ATOMICS = (
    "index_add",
    "scatter_add",
    "index_put",
    "index_put of columns",
    "index_put after a slice",
    "embedding",
)
ROUNDING = 1e-6  # 8 roundoffs of float32: a sum of 5,000 terms with random errors stays below it
TF32 = 2.0**-11  # the largest relative error of a factor


def run(
    program: str, *arguments: str, numerics: str = "device", gpu: str = "h200", env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    command = [sys.executable, "-m", "unstall.virtual", "--gpu", gpu, "--numerics", numerics]
    done = succeeded(
        [*command, str(PROGRAMS / f"{program}.py"), *arguments], timeout=600, env={**os.environ, **(env or {})}
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@functools.cache
def told(numerics: str, gpu: str = "h200") -> dict[str, Any]:
    return run("device_values", numerics=numerics, gpu=gpu)


@pytest.mark.parametrize("name", [*SUMS, *PRODUCTS, *VECTORS, *CONVOLUTIONS, "batch norm", "attention"])
def test_a_sum_has_other_bits_than_the_cpus_and_is_as_exact(name: str) -> None:
    found = told("device")[name]
    assert found["differ"]
    assert found["error"] < ROUNDING
    assert found["again"]


@pytest.mark.parametrize("name", [*SUMS, *ATOMICS, *PRODUCTS, *CONVOLUTIONS, "variance", "logsumexp", "batch norm"])
def test_real_values_are_the_cpus(name: str) -> None:
    assert not told("real")[name]["differ"]


def test_results_have_the_strides_of_real_ones() -> None:
    strides = [{name: each["strides"] for name, each in _told_of(numerics).items()} for numerics in ("device", "real")]
    assert strides[0] == strides[1]


@pytest.mark.parametrize("name", [*PRODUCTS, *CONVOLUTIONS, "grouped", "transposed"])
def test_factors_are_rounded_to_tf32_if_torch_says_so(name: str) -> None:
    assert ROUNDING < told("device")[f"{name} in TF32"]["error"] < TF32


@pytest.mark.parametrize("name", VECTORS)
def test_products_with_vectors_know_no_tf32(name: str) -> None:
    assert told("device")[f"{name} in TF32"]["bits"] == told("device")[name]["bits"]


@pytest.mark.parametrize("name", [*PRODUCTS, *CONVOLUTIONS])
def test_a_t4_has_no_tf32(name: str) -> None:
    assert told("device", "t4")[f"{name} in TF32"]["bits"] == told("device", "t4")[name]["bits"]


def test_an_environment_variable_turns_tf32_off() -> None:
    found = run("device_values", env={"NVIDIA_TF32_OVERRIDE": "0"})
    assert found["mm in TF32"]["bits"] == told("device")["mm"]["bits"]


def test_a_graph_replays_the_same_values() -> None:
    assert told("device")["replayed"]


@pytest.mark.parametrize("name", ["mm", "linear"])
def test_halves_are_rounded_once(name: str) -> None:
    # The float32 sum itself is rounded: few elements are so close to the middle between two halves that it matters.
    assert told("device")[f"{name} rounded once"] > 0.98


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_come_in_another_order_at_each_call(name: str) -> None:
    found = told("device")[name]
    assert (found["differ"], found["again"]) == (True, False)
    assert found["error"] < ROUNDING


@pytest.mark.parametrize("name", ATOMICS)
def test_deterministic_algorithms_fix_the_order_of_atomics(name: str) -> None:
    assert told("device")["fixed"][name]["again"]


def test_each_run_has_the_same_bits() -> None:
    assert run("device_values") == told("device")


def test_a_seed_picks_the_order_of_atomics_and_random_numbers_stay() -> None:
    first, again, other = (run("atomics_by_seed", seed) for seed in ("0", "0", "1"))
    assert first == again
    assert first["added"] != other["added"]
    assert first["same random numbers"]


def test_sums_of_integers_are_exact() -> None:
    assert told("device")["integers"] == 4999 * 5000 // 2


def test_numbers_that_differ_are_explained_as_on_a_gpu() -> None:
    found = run("device_numbers")
    assert found["products"]["cpu"] == "rounding"
    assert found["products"]["cuda"] == "equal"
    assert found["products in TF32"]["cpu"] == "TF32"
    assert found["convolution in TF32"]["cpu"] == "TF32"  # torch's default
    assert found["atomics"]["repeat"] == "nondeterministic"


def _told_of(numerics: str) -> dict[str, Any]:
    return {name: each for name, each in told(numerics).items() if isinstance(each, dict) and "bits" in each}
