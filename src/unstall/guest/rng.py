"""The global random number generators. Detects which generators were used between two moments. Saves and restores the
states of generators.

Generators of NumPy and torch are included only if the program has imported NumPy and torch.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterable
from typing import Any

HOST = frozenset(("torch", "random", "numpy.random"))


def random_states() -> dict[str, Any]:
    """Returns a dict that maps the name of each random number generator on the host ("random", "torch", "numpy.random")
    to its state. When a generator is used or seeded, its state changes.

    A call takes 30 to 90 µs, mostly for NumPy's generator.
    """
    states: dict[str, Any] = {"random": random.getstate()}
    torch, numpy_random = _torch(), sys.modules.get("numpy.random")
    if torch is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    if numpy_random is not None:
        name, keys, *rest = numpy_random.get_state()
        states["numpy.random"] = (name, keys.tobytes(), *rest)
    return states


def drawn_from(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Compares two results of `random_states`. Returns the names of the generators that were used or seeded between the
    two calls of `random_states`."""
    return {name for name, state in after.items() if before.get(name, state) != state}


class RandomStates:
    """The saved states of random number generators, as they are when the object is made. `put_back` restores them.

    Args:
        host: The names of the host generators whose states are saved: "torch", "random", "numpy.random".
        devices: The torch devices whose generator states are saved.
    """

    def __init__(self, host: Collection[str] = HOST, devices: Iterable[Any] = ()) -> None:
        torch, numpy_random = _torch(), sys.modules.get("numpy.random")
        self._torch = torch.get_rng_state() if torch is not None and "torch" in host else None
        self._random = random.getstate() if "random" in host else None
        self._numpy = numpy_random.get_state() if numpy_random is not None and "numpy.random" in host else None
        self._devices = [(module, which, module.get_rng_state(*which)) for module, which in map(_module_of, devices)]

    def put_back(self) -> None:
        if self._torch is not None:
            sys.modules["torch"].set_rng_state(self._torch)
        if self._random is not None:
            random.setstate(self._random)
        if self._numpy is not None:
            sys.modules["numpy.random"].set_state(self._numpy)
        for module, which, state in self._devices:
            module.set_rng_state(state, *which)


def devices_in_use() -> list[Any]:
    """Returns the torch devices, without the CPU, whose random number generators the program may use."""
    torch = _torch()
    if torch is None:
        return []
    if torch.cuda.is_initialized():
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    accelerator = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
    return [accelerator] if accelerator is not None and accelerator.type in ("mps", "xpu") else []


def _torch() -> Any | None:
    """Returns torch, or None if torch is not yet fully imported."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_rng_state") else None


def _module_of(device: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns (module, arguments). `module` is torch's module for this type of device. `arguments` are the arguments
    that select the device in calls of `module`. There are no arguments for MPS, because MPS has only one device."""
    module = sys.modules["torch"].get_device_module(device)
    return module, () if device.type == "mps" else (device,)
