"""Streams, events and memory of the accelerators for which torch has streams: CUDA, ROCm, XPU."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from types import ModuleType
from typing import Any

import torch

from unstall.errors import UsageError
from unstall.figures import counted

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class Accelerator:
    """One device that has streams. Each device has one `Accelerator`, which keeps the device's streams until the
    process ends."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module: ModuleType = torch.get_device_module(device)
        self._streams: dict[str, torch.Stream] = {}
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None) if device.type == "cuda" else None
        self._raw_current: Callable[[int | None], int] | None = raw
        self._last: tuple[int, torch.Stream | None] = (-1, None)

    def stream(self, name: str) -> torch.Stream:
        """Returns the stream with this name. The first call with a name creates the stream."""
        if name not in self._streams:
            self._streams[name] = self._module.Stream(self.device)
        return self._streams[name]

    def current(self) -> torch.Stream:
        """Returns the current stream of the calling thread on this device."""
        if self._raw_current is None:
            current: torch.Stream = self._module.current_stream(self.device)
            return current
        raw = self._raw_current(self.device.index)  # takes a tenth of the 4 µs of `current_stream`
        last, stream = self._last
        if stream is None or raw != last:
            stream = self._module.current_stream(self.device)
            self._last = raw, stream
        return stream

    def on(self, stream: torch.Stream) -> AbstractContextManager[object]:
        """Returns a context manager that makes `stream`, a stream of this device, the current stream."""
        if self._raw_current is not None:
            return _OnCuda(stream)
        context: AbstractContextManager[object] = self._module.stream(stream)
        return context

    def enter(self) -> None:
        """Makes this device the current device of the calling thread. Also prevents this thread from breaking a capture
        of a CUDA graph in another thread.

        Suppose that one thread captures a CUDA graph in torch's default mode. An allocation or event query in another
        thread then fails and makes the capture fail. The relaxed mode, which is set here, exempts the calling thread if
        it captures nothing itself.
        """
        self._module.set_device(self.device)
        if self.device.type == "cuda" and torch.version.cuda is not None:
            with contextlib.suppress(OSError, AttributeError):
                mode = ctypes.c_int(_RELAXED)
                ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def event(self, *, timed: bool = False, blocking: bool = False) -> torch.Event:
        """Returns a new event. If `timed` is true, the event can be used to measure times. If `blocking` is true, a
        host thread that waits for the event sleeps instead of spinning (CUDA only)."""
        event: torch.Event
        if self.device.type == "cuda":
            event = self._module.Event(enable_timing=timed, blocking=blocking)
        else:
            event = self._module.Event(enable_timing=timed)
        return event

    def memory_bytes(self) -> tuple[int, int]:
        """Returns the free and the total bytes of device memory. Memory that the caching allocator reserved but does
        not use counts as free. Memory beyond the limit of `set_per_process_memory_fraction` does not count as free.
        """
        free, total = self._module.mem_get_info(self.device)
        reserved = self._module.memory_reserved(self.device)
        left = min(free, int(total * self._fraction()) - reserved)
        return int(max(0, left) + max(0, reserved - self._module.memory_allocated(self.device))), int(total)

    def unneeded_bytes(self) -> int:
        """Returns how many bytes of device memory stay free when the program's tensors take the most memory. The most
        memory is the peak of the allocated bytes so far."""
        free, total = self._module.mem_get_info(self.device)
        allowed = min(free + self._module.memory_reserved(self.device), total * self._fraction())
        return int(allowed - self._module.max_memory_allocated(self.device))

    def _fraction(self) -> float:
        """Returns the share of the device's memory that the program may use."""
        asked = getattr(self._module, "get_per_process_memory_fraction", None)
        return float(asked(self.device)) if asked else 1.0

    def total_bytes(self) -> int:
        return int(self._module.get_device_properties(self.device).total_memory)

    def release_cache(self) -> None:
        self._module.empty_cache()

    def capturing(self) -> bool:
        asked = getattr(self._module, "is_current_stream_capturing", None)
        return bool(asked()) if asked is not None else False


class _OnCuda:
    """Makes a stream of CUDA the current stream, as `torch.cuda.stream` does. Takes a tenth of the 15 µs."""

    __slots__ = ("_before", "_device", "_stream")

    def __init__(self, stream: torch.Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        stream: Any = self._stream
        self._device: int = torch._C._cuda_getDevice()
        self._before: tuple[int, int, int] = torch._C._cuda_getCurrentStream(stream.device_index)
        torch._C._cuda_setStream(stream.stream_id, stream.device_index, stream.device_type)  # and the device

    def __exit__(self, *error: object) -> None:
        torch._C._cuda_setStream(*self._before)
        if self._device != self._before[1]:
            torch._C._cuda_setDevice(self._device)


def device_of(device: torch.device | str | int) -> torch.device:
    """Converts the name or number of a device to a `torch.device`. The device need not exist on this machine.

    Raises:
        UsageError: torch does not know this type of device, or the machine has devices of this type but none with this
            index.
    """
    try:
        wanted = torch.device(device)
        count = int(getattr(torch.get_device_module(wanted), "device_count", lambda: 0)())
    except (RuntimeError, TypeError):
        raise UsageError(f"{device!r} is no device that torch has a name for, such as 'cuda:1'") from None
    if wanted.type != "cpu" and wanted.index is not None and 0 < count <= wanted.index:
        raise UsageError(f"there is no {wanted}: torch has {counted(count, f'{wanted.type} device')}")
    return wanted


def accelerator_for(device: torch.device | str | int) -> Accelerator | None:
    """Returns the `Accelerator` of a device. Returns None if torch does not have this device, or if the device has no
    streams (CPU, MPS)."""
    wanted = torch.device(device)
    try:
        module = torch.get_device_module(wanted)
    except RuntimeError:
        return None
    if wanted.type == "cpu" or not hasattr(module, "Stream") or not module.is_available():
        return None
    index = wanted.index if wanted.index is not None else module.current_device()
    return _of(wanted.type, int(index))


_known: dict[torch.device, Accelerator] = {}


def accelerator_of(device: torch.device) -> Accelerator | None:
    """Returns the `Accelerator` of a tensor's device. Returns None if the device has no streams (CPU, MPS).

    The result is cached for each device, so this function is faster than `accelerator_for`. It must only be called with
    the device of a tensor, because such a device always exists.
    """
    known = _known.get(device)
    if known is None and device.type != "cpu":
        known = accelerator_for(device)
        if known is not None:
            _known[device] = known
    return known


def is_there(device: torch.device) -> bool:
    """Returns whether tensors can be put on the device. This also works for devices without streams."""
    if device.type == "cpu":
        return True
    try:
        return bool(torch.get_device_module(device).is_available())
    except (RuntimeError, AttributeError):
        return False


def none_of(device: torch.device) -> str:
    """Returns a message that says that the device is missing or has no streams. If torch has another accelerator, the
    message names it."""
    other = torch.accelerator.current_accelerator(check_available=True) if hasattr(torch, "accelerator") else None
    hint = (
        f" (torch has {other.type}: device={other.type!r})" if other is not None and other.type != device.type else ""
    )
    return f"there is no {device.type} device with streams here{hint}"


@cache
def _of(kind: str, index: int) -> Accelerator:
    return Accelerator(torch.device(kind, index))


def milliseconds(start: torch.Event, end: torch.Event) -> float:
    """Returns the time in ms between two events with timing. The device must have reached both events."""
    return float(start.elapsed_time(end))
