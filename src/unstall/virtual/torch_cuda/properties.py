"""The properties of virtual GPUs, as `torch.cuda.get_device_properties` returns them, and the
versions of the CUDA build.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

# The CUDA build that the virtual GPU imitates: torch 2.11's wheel for CUDA 13.0.
CUDA_VERSION = "13.0"
COMPILED_VERSION = 13000
CUDNN_VERSION = (9, 19, 0)
NCCL_VERSION = (2, 28, 9)
ARCHITECTURES = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"

UUID_NAMESPACE = uuid.UUID("6a0d6f0e-2f0b-5c39-9f5d-0f2a3c8f5c11")
MIB = 1 << 20


class DeviceUuid:
    """The UUID of a device, as torch has it. `bytes` is a list of 16 numbers; `str()` returns the
    usual form of a UUID.
    """

    def __init__(self, value: uuid.UUID) -> None:
        self._value = value

    @property
    def bytes(self) -> list[int]:
        return list(self._value.bytes)

    def __str__(self) -> str:
        return str(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceUuid) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, repr=False)
class DeviceProperties:
    """The properties of a device, with the names of torch's `_CudaDeviceProperties`. Sizes are in
    bytes, clock rates in kHz, the width of the bus in bits.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    L2_cache_size: int
    index: int = 0
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_block_optin: int = 49152
    shared_memory_per_multiprocessor: int = 65536
    clock_rate: int = 0
    memory_clock_rate: int = 0
    memory_bus_width: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    pci_bus_id: int = 0
    pci_domain_id: int = 0

    @classmethod
    def of(cls, description: object, index: int = 0) -> DeviceProperties:
        """Returns the properties of the device with the given index.

        `description` has some of the fields of this class: as keys if it is a mapping, otherwise as
        attributes.

        Raises:
            ValueError: A field in `REQUIRED` is missing.
        """
        given = description if isinstance(description, Mapping) else _attributes(description)
        known = {field.name: given[field.name] for field in fields(cls) if field.name in given}
        missing = [name for name in REQUIRED if name not in known]
        if missing:
            raise ValueError(f"the GPU's description does not say its {', '.join(missing)}")
        return cls(**(known | {"index": index}))

    @property
    def pci_device_id(self) -> int:
        return self.index

    @property
    def gcnArchName(self) -> str:  # noqa: N802
        """The device's name. torch has this property, which is meant for ROCm, in CUDA builds too."""
        return self.name

    @property
    def uuid(self) -> DeviceUuid:
        """The UUID of the device, which is the same in every process."""
        return DeviceUuid(uuid.uuid5(UUID_NAMESPACE, f"{self.name}/{self.index}"))

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor},"
            f" total_memory={self.total_memory // MIB}MB, multi_processor_count={self.multi_processor_count},"
            f" uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id},"
            f" pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size // MIB}MB)"
        )


H200 = DeviceProperties(
    name="NVIDIA H200",
    major=9,
    minor=0,
    total_memory=150_109_880_320,
    multi_processor_count=132,
    L2_cache_size=60 * MIB,
    shared_memory_per_block_optin=232_448,
    shared_memory_per_multiprocessor=233_472,
    clock_rate=1_980_000,
    memory_clock_rate=3_201_000,
    memory_bus_width=6_016,
)
"""The properties of an H200, read with driver 580 and CUDA 13.0."""
REQUIRED = ("name", "major", "minor", "total_memory", "multi_processor_count", "L2_cache_size")
"""The fields that a description of a device must have."""


def _attributes(description: object) -> dict[str, Any]:
    names = (field.name for field in fields(DeviceProperties))
    return {name: getattr(description, name) for name in names if hasattr(description, name)}
