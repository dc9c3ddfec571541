"""Devices. What is compared with is what an H200 said to torch 2.11 for CUDA 13.0, or would with two."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.torch_cuda.running import facts

pytestmark = pytest.mark.slow
CANNOT = (
    "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the"
    " 'spawn' start method"
)


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("devices", devices=2)


def test_cuda_is_available_before_it_is_initialised(told: dict[str, Any]) -> None:
    assert (told["available before anything"], told["initialised before anything"]) == (True, False)


def test_asking_for_the_current_device_initialises(told: dict[str, Any]) -> None:
    assert (told["current"], told["initialised after that"]) == (0, True)


def test_there_are_as_many_devices_as_were_asked_for(told: dict[str, Any]) -> None:
    assert told["count"] == 2


def test_versions_are_those_of_a_cuda_build(told: dict[str, Any]) -> None:
    assert told["versions"] == ["13.0", 91900, [2, 28, 9]]
    assert told["built"] == [True, True]


def test_properties_read_as_a_real_device_s(told: dict[str, Any]) -> None:
    before, _, after = told["properties"].partition(", uuid=")
    assert before == (
        "_CudaDeviceProperties(name='NVIDIA H200', major=9, minor=0, total_memory=143155MB, multi_processor_count=132"
    )
    assert after.endswith(", pci_bus_id=0, pci_device_id=0, pci_domain_id=0, L2_cache_size=60MB)")


def test_each_device_has_a_uuid_of_its_own(told: dict[str, Any]) -> None:
    assert told["uuids differ"] is True


def test_what_a_device_can(told: dict[str, Any]) -> None:
    assert told["capability"] == [9, 0]
    assert told["name"] == "NVIDIA H200"
    assert told["bfloat16 and tf32"] == [True, True]
    assert "sm_90" in told["architectures"]


def test_a_device_is_no_peer_of_itself(told: dict[str, Any]) -> None:
    assert told["peers"] == [True, False]


def test_a_device_that_is_not_there_is_refused_in_cuda_s_words(told: dict[str, Any]) -> None:
    raises, kind, text = told["no such device"]
    assert (raises, kind) == ("raises", "AcceleratorError")
    assert text.startswith("CUDA error: invalid device ordinal\nGPU device may be out of range")
    assert told["no such properties"] == ["raises", "AssertionError", "Invalid device id"]


def test_a_device_is_current_within_its_block(told: dict[str, Any]) -> None:
    assert told["within device 1"] == [1, "cuda:1", "cuda:1", 0]
    assert told["accelerator's index"] == 1


def test_tensors_move_between_devices_and_do_not_mix(told: dict[str, Any]) -> None:
    assert told["from device 0 to 1"] == "cuda:1"
    raises, kind, text = told["both at once"]
    assert (raises, kind) == ("raises", "RuntimeError")
    assert text.startswith("Expected all tensors to be on the same device")


def test_the_accelerator_is_cuda(told: dict[str, Any]) -> None:
    assert told["accelerator"] == ["cuda", 2]


def test_a_forked_child_cannot_use_the_devices_of_its_parent(told: dict[str, Any]) -> None:
    assert told["in a forked child"] == [
        "True",
        "False",
        CANNOT,
        CANNOT,
        "AcceleratorError: CUDA error: initialization error",
        "0",
    ]
