"""NVTX, the CUDA runtime, the libraries' switches; what is refused is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.torch_cuda.running import facts

from unstall.virtual.torch_cuda.blas import lt_workspace_bytes, workspace_bytes

slow = pytest.mark.slow
MIB = 1 << 20


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("profiling")


@slow
def test_ranges_say_how_deep_they_are(told: dict[str, Any]) -> None:
    assert told["ranges"] == [0, 1, 1, 0, -2]
    assert told["handles"] == [None, None]


@slow
def test_the_runtime_s_errors_have_cuda_s_texts(told: dict[str, Any]) -> None:
    assert told["texts"] == ["no error", "out of memory", "device not ready", "unrecognized error code"]
    assert told["check"] == ["raises", "CudaError", "out of memory (2)"]
    assert told["profiler"] == [None, None]


@slow
def test_switches_of_the_libraries_are_kept(told: dict[str, Any]) -> None:
    assert told["switches"] == [False, True]
    assert told["benchmark"] == [10, False]
    assert told["set switches"] == [3, True]
    assert told["handle"] is True
    assert told["workspace"] == 32 * MIB
    assert told["tunable"] == [False, 30]
    assert told["sync mode"] == 0


@slow
@pytest.mark.parametrize(
    "name",
    [
        "torch.cuda.tunable.enable",
        "torch.cuda.jiterator",
        "torch.cuda.gds.gds_register_buffer",
        "torch.cuda.nccl.init_rank",
        "cudaHostRegister",
        "torch.autograd.profiler.emit_nvtx",
    ],
)
def test_what_a_virtual_gpu_cannot_is_refused_by_its_name(told: dict[str, Any], name: str) -> None:
    raises, kind, text = told[name]
    assert (raises, kind) == ("raises", "NotSupportedError")
    assert text.startswith(f"{name} is not supported by the virtual GPU")


@slow
def test_torch_asks_for_no_name_that_is_not_there(told: dict[str, Any]) -> None:
    assert told["missing names"] == []


@pytest.mark.parametrize(
    ("major", "environment", "size"),
    [(9, "", 32 * MIB), (8, "", 8320 * 1024), (9, ":4096:8", 32 * MIB), (9, ":16:8", 128 * 1024)],
)
def test_a_cublas_workspace_is_as_large_as_its_variable_or_its_device_says(
    major: int, environment: str, size: int
) -> None:
    assert workspace_bytes(major, environment) == size


def test_a_cublaslt_workspace_is_as_large_as_its_variable_says() -> None:
    assert lt_workspace_bytes(9, "1024") == MIB
