"""Queries torch about the device. This module does not import torch or initialise CUDA. Only `synchronize` and
`wait_to_leave` wait for the device.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

PROFILER_IS_ON = "torch.profiler is on already: record what it does not, or without it"

_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # Linux; Windows Subsystem for Linux
_AMD_DRIVER = "/dev/kfd"
_LOOK_AGAIN_S, _LEAVING_WAITS_S = 0.001, 5.0
_RESERVED_PEAK = "reserved_bytes.all.peak"
_MEMORY = (  # of torch.cuda.memory_stats: the caching allocator's bytes, and how often it freed memory and retried
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.current",
    _RESERVED_PEAK,
    "segment.all.current",
    "num_alloc_retries",
    "num_ooms",
)
_PROPERTIES = ("name", "uuid", "pci_domain_id", "pci_bus_id", "pci_device_id", "total_memory", "multi_processor_count")


class TimingEvent(Protocol):
    """The methods of `torch.cuda.Event(enable_timing=True)` that unstall uses."""

    def query(self) -> bool: ...

    def elapsed_time(self, end: TimingEvent, /) -> float: ...


def cuda() -> Any | None:
    """Returns the module `torch.cuda`, or None if the program has not initialised CUDA."""
    module = getattr(sys.modules.get("torch"), "cuda", None)
    return module if module is not None and module.is_initialized() else None


def when_initialised(act: Callable[[], None]) -> Callable[[], None]:
    """Calls `act` when CUDA is initialised, or immediately if CUDA is already initialised. torch must be imported.
    `act` must not raise an exception.

    Returns a function that cancels the callback.
    """
    module = sys.modules["torch"].cuda
    pending = [act]

    def act_if_pending() -> None:
        for each in pending:
            each()

    def cancel() -> None:
        pending.clear()
        # Who holds torch's lock is going through the list, or adding to it. Then ours stays there, and does nothing.
        lock = getattr(module, "_initialization_lock", None)
        if lock is not None and lock.acquire(blocking=False):
            try:
                module._queued_calls[:] = [call for call in module._queued_calls if call[0] is not act_if_pending]
            finally:
                lock.release()

    if hasattr(module, "_lazy_call"):
        module._lazy_call(act_if_pending)
    return cancel


def may_be_in_use() -> bool:
    """Returns whether the program may use a device. Returns True if CUDA is initialised. Also returns True if the
    machine does not have NVIDIA's driver, because such a machine may have a device of another kind."""
    return cuda() is not None or not has_driver()


def has_driver() -> bool:
    """Returns whether this machine has NVIDIA's driver."""
    return any(Path(driver).exists() for driver in _DRIVERS)


def has_gpu() -> bool:
    """Returns whether this machine has a driver for GPUs of NVIDIA or AMD."""
    return has_driver() or Path(_AMD_DRIVER).exists()


def capturing() -> bool:
    """Returns whether a CUDA graph is being captured on this thread's current stream. The host must not wait for the
    device during a capture."""
    module = cuda()
    return module is not None and bool(module.is_current_stream_capturing())


def timing_event() -> TimingEvent | None:
    """Records a timing event on this thread's current stream. Returns the event. Returns None if CUDA is not
    initialised."""
    module = cuda()
    if module is None:
        return None
    event = module.Event(enable_timing=True)
    event.record()
    recorded: TimingEvent = event
    return recorded


def synchronize() -> None:
    """Waits until every device that this process uses has finished its work."""
    module = cuda()
    if module is not None:
        for index in _devices(module):
            module.synchronize(index)


def wait_to_leave() -> None:
    """Waits up to 5 seconds until this thread's current stream has finished its work. The time is limited because a
    device may never finish, for example if the other ranks have ended. In this case, too, the program must be able to
    end."""
    event = timing_event()
    until = time.monotonic() + _LEAVING_WAITS_S
    while event is not None and not event.query() and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN_S)


def asked_for() -> dict[str, bool]:
    """Returns a dict with three booleans: whether torch is imported ("torch"), whether CUDA is initialised ("cuda"),
    and whether the last uncaught exception mentions CUDA ("failed_for_cuda"). Call this when the program ends."""
    error = getattr(sys, "last_value", None)
    said = ""
    with suppress(Exception):  # without `traceback`: the program may have a module of that name
        said = f"{type(error).__name__}: {error}"
    return {"torch": "torch" in sys.modules, "cuda": cuda() is not None, "failed_for_cuda": "CUDA" in said}


def profiler_is_on() -> bool:
    """Returns whether torch's profiler is running in the program."""
    profiler = sys.modules.get("torch.autograd.profiler")
    if profiler is None:
        return False
    enabled = getattr(sys.modules["torch"]._C._autograd, "_profiler_enabled", None)
    return bool(getattr(profiler, "_is_profiler_enabled", False) or (enabled is not None and enabled()))


def grad_enabled() -> bool:
    """Returns whether autograd records operations in this thread. Returns True if torch is not imported."""
    enabled = getattr(sys.modules.get("torch"), "is_grad_enabled", None)
    return enabled is None or bool(enabled())


def memory() -> dict[str, int]:
    """Returns counters of torch's caching allocator, by their names in `torch.cuda.memory_stats`, such as
    "allocated_bytes.all.current". Returns {} if CUDA is not initialised.

    The counters are those of the current device. The only exception is "reserved_bytes.all.peak": it is the highest
    peak of all devices that this process uses.
    """
    module = cuda()
    if module is None:
        return {}
    stats = dict(module.memory_stats())
    peaks = [module.memory_stats(index).get(_RESERVED_PEAK) for index in _devices(module)]
    stats[_RESERVED_PEAK] = max((peak for peak in peaks if peak is not None), default=None)
    return {name: stats[name] for name in _MEMORY if stats.get(name) is not None}


def allocations() -> int:
    """Returns the number of allocations that the current device's caching allocator has made so far. Returns 0 if CUDA
    is not initialised. The number grows while the program uses the device."""
    module = cuda()
    return int(module.memory_stats().get("allocation.all.allocated", 0)) if module is not None else 0


def machine() -> dict[str, object]:
    """Returns a dict that describes the machine and this process. "python", "torch" and "cuda" are versions. "devices"
    is a list with a dict for each device that this process uses: its index and properties such as its name. "rank" and
    "world_size" are the values of the environment variables RANK and WORLD_SIZE. A value is None if it is not known."""
    torch = sys.modules.get("torch")
    module = cuda()
    return {
        "python": sys.version.split()[0],
        "torch": str(torch.__version__) if torch is not None else None,
        "cuda": str(torch.version.cuda) if torch is not None and torch.version.cuda else None,
        "devices": [_properties(module, index) for index in _devices(module)] if module is not None else [],
        "rank": os.environ.get("RANK"),
        "world_size": os.environ.get("WORLD_SIZE"),
    }


def _devices(module: Any) -> list[int]:
    """Returns the indices of the devices on which this process has a context. A query of any other device would create
    a context there."""
    has_context = getattr(sys.modules["torch"]._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return [module.current_device()]
    return [index for index in range(module.device_count()) if has_context(index)]


def _properties(module: Any, index: int) -> dict[str, object]:
    properties = module.get_device_properties(index)
    known = {name: getattr(properties, name) for name in _PROPERTIES if hasattr(properties, name)}
    return {"index": index, **{name: value if isinstance(value, int) else str(value) for name, value in known.items()}}
