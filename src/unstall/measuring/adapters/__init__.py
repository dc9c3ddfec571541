"""Adapters: one class for each framework, by which measurements use the framework. An adapter never
imports a framework that the program has not imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from unstall.measuring.adapters.adapter import Adapter, Array

__all__ = ["Adapter", "Array", "adapter_for", "copied", "on_the_host"]


def adapter_for(values: Iterable[object]) -> Adapter:
    """Returns the adapter for the framework and the device of the arrays in `values`. If some
    arrays are on a device, ignores arrays on the host.

    Without arrays on a device and without arrays of JAX, it returns the adapter for torch on CUDA
    if torch has initialised CUDA, because the function may use the device by itself. If torch has
    not initialised CUDA, it returns an adapter for the host.
    """
    values = list(values)
    torch, jax, cupy = (sys.modules.get(name) for name in ("torch", "jax", "cupy"))
    if torch is not None and hasattr(torch, "Tensor"):
        devices = [value.device for value in values if isinstance(value, torch.Tensor)]
        away = next((device for device in devices if device.type not in ("cpu", "meta")), None)
        if away is not None:
            return _torch_on(away.type, away.index)
    if cupy is not None and any(isinstance(value, cupy.ndarray) for value in values):
        from unstall.measuring.adapters.cupy import Cupy

        return Cupy()
    if jax is not None and hasattr(jax, "Array"):
        arrays = [value for value in values if isinstance(value, jax.Array)]
        platforms = {device.platform for array in arrays for device in array.devices()}
        if platforms:
            from unstall.measuring.adapters.jax import Jax

            return Jax(min(platforms, key=lambda platform: platform == "cpu"))
    if torch is not None and hasattr(torch, "Tensor"):
        if torch.cuda.is_initialized():
            return _torch_on("cuda", None)
        if any(isinstance(value, torch.Tensor) or _is_torchs(value) for value in values):
            return on_the_host(True)
    return on_the_host(False)


def copied(value: Any) -> Any:
    """Returns a copy of `value`: all lists, tuples and dicts in it are copied, and all arrays in
    these. Other objects are not copied.
    """
    if type(value) is dict:
        return {key: copied(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    adapter = adapter_for([value])
    return adapter.copied(value) if adapter.holds(value) else value


def on_the_host(torch: bool) -> Adapter:
    """Returns an adapter for functions that do not use a device: the adapter for torch on the CPU
    if `torch` is true, and the adapter for plain Python and NumPy if it is false.
    """
    if torch:
        from unstall.measuring.adapters.torch_cpu import TorchCpu

        return TorchCpu()
    return Adapter()


def _torch_on(kind: str, index: int | None) -> Adapter:
    if kind == "cuda":
        from unstall.measuring.adapters.torch_cuda import TorchCuda

        return TorchCuda(index)
    from unstall.measuring.adapters.torch_other import TorchOther

    return TorchOther(kind, index)


def _is_torchs(value: object) -> bool:
    return (getattr(type(value), "__module__", "") or "").split(".")[0] == "torch"
