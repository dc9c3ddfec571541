"""Whom the functions of `torch._C` ask: the simulation of this process, and the devices that it is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unstall.virtual.torch_cuda.refuse import NotSupportedError

if TYPE_CHECKING:
    from unstall.virtual.torch_cuda.keeper import Keeper
    from unstall.virtual.torch_cuda.properties import DeviceProperties


@dataclass(slots=True)
class _Attached:
    keeper: Keeper | None = None
    devices: tuple[DeviceProperties, ...] = ()


_attached = _Attached()


def attach(keeper: Keeper, devices: Sequence[DeviceProperties]) -> None:
    """From now on this keeper is asked. Before `torch.cuda` is first used; `devices` in the order of their indices."""
    _attached.keeper = keeper
    _attached.devices = tuple(devices)


def keeper() -> Keeper:
    """Raises NotSupportedError where nothing simulates what the shim records."""
    if _attached.keeper is None:
        raise NotSupportedError("this figure of torch.cuda", "nothing simulates what runs in this process")
    return _attached.keeper


def devices(count: int) -> tuple[DeviceProperties, ...]:
    """`count` devices, as attached; else as an H200 is."""
    from unstall.virtual.torch_cuda.properties import H200, DeviceProperties

    attached = _attached.devices or tuple(DeviceProperties.of(H200, index) for index in range(count))
    if len(attached) != count:
        raise ValueError(f"the shim has {count} devices, {len(attached)} were described")
    return attached
