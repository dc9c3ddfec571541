"""Generators of random numbers: those of the devices are the shim's."""

from __future__ import annotations

from typing import Any

from unstall.virtual.torch_cuda.runtime import Runtime


def default_generators(runtime: Runtime) -> tuple[Any, ...]:
    """`torch.cuda.default_generators`, one for each device."""
    generator_of = runtime.shim.default_generator
    return tuple(generator_of(device) for device in range(runtime.shim.device_count()))
