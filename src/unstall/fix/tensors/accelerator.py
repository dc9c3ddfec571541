"""Streams, events and pinned memory of whichever accelerator torch has: CUDA, ROCm, XPU."""

from __future__ import annotations

import contextlib
import ctypes
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch

from unstall.errors import UsageError
from unstall.figures import counted

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class Accelerator:
    """One device with streams. Each device has one object, whose streams last as long as the process."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module = torch.get_device_module(device)
        self._streams: dict[str, Any] = {}
        self._raw_current = getattr(torch._C, "_cuda_getCurrentRawStream", None) if device.type == "cuda" else None
        self._last: tuple[int, Any] = (-1, None)

    def stream(self, name: str) -> Any:
        """The stream of that name, made when it is first asked for."""
        if name not in self._streams:
            self._streams[name] = self._module.Stream(self.device)
        return self._streams[name]

    def current(self) -> Any:
        if self._raw_current is None:
            return self._module.current_stream(self.device)
        raw = self._raw_current(self.device.index)  # a tenth of the 4 µs that the stream itself takes
        last, stream = self._last
        if raw != last:
            stream = self._module.current_stream(self.device)
            self._last = raw, stream
        return stream

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return self._module.stream(stream)  # type: ignore[no-any-return]

    def enter(self) -> None:
        """Makes it the current device of the thread that calls, which thereby leaves the captures of others alone.

        While a thread captures a CUDA graph, as torch does it by default, no other may allocate or look at an event: it
        would fail, and the capture too. Of a thread that never captures, the driver does not ask this.
        """
        self._module.set_device(self.device)
        if self.device.type == "cuda" and torch.version.cuda is not None:
            with contextlib.suppress(OSError, AttributeError):
                mode = ctypes.c_int(_RELAXED)
                ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def event(self, *, timed: bool = False, blocking: bool = False) -> Any:
        """`blocking`: who waits for it sleeps, and does not spin."""
        if self.device.type == "cuda":
            return self._module.Event(enable_timing=timed, blocking=blocking)
        return self._module.Event(enable_timing=timed)

    def memory_bytes(self) -> tuple[int, int]:
        """Free, counting what the caching allocator holds unused, and in all."""
        free, total = self._module.mem_get_info(self.device)
        unused = self._module.memory_reserved(self.device) - self._module.memory_allocated(self.device)
        return int(free + max(0, unused)), int(total)

    def unneeded_bytes(self) -> int:
        """Free, even when the program holds as much as it ever did."""
        free, total = self._module.mem_get_info(self.device)
        asked = getattr(self._module, "get_per_process_memory_fraction", None)
        allowed = min(free + self._module.memory_reserved(self.device), total * (asked(self.device) if asked else 1.0))
        return int(allowed - self._module.max_memory_allocated(self.device))

    def total_bytes(self) -> int:
        return int(self._module.get_device_properties(self.device).total_memory)

    def release_cache(self) -> None:
        self._module.empty_cache()

    def capturing(self) -> bool:
        asked = getattr(self._module, "is_current_stream_capturing", None)
        return bool(asked()) if asked is not None else False


def device_of(device: torch.device | str | int) -> torch.device:
    """Raises UsageError for what torch does not know, and for one more than it has. That it has none is no error."""
    try:
        wanted = torch.device(device)
        count = int(getattr(torch.get_device_module(wanted), "device_count", lambda: 0)())
    except (RuntimeError, TypeError):
        raise UsageError(f"{device!r} is no device that torch has a name for, such as 'cuda:1'") from None
    if wanted.type != "cpu" and wanted.index is not None and 0 < count <= wanted.index:
        raise UsageError(f"there is no {wanted}: torch has {counted(count, f'{wanted.type} device')}")
    return wanted


def accelerator_for(device: torch.device | str | int) -> Accelerator | None:
    """None where torch has no such device, or where the device has no streams (the CPU, MPS)."""
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
    """As `accelerator_for`, for the device of a tensor: since that is there, the driver is asked once alone."""
    known = _known.get(device)
    if known is None and device.type != "cpu":
        known = accelerator_for(device)
        if known is not None:
            _known[device] = known
    return known


def is_there(device: torch.device) -> bool:
    """Whether torch can put tensors there: on the CPU, and on devices without streams too."""
    if device.type == "cpu":
        return True
    try:
        return bool(torch.get_device_module(device).is_available())
    except (RuntimeError, AttributeError):
        return False


def none_of(device: torch.device) -> str:
    """That there is no such device, and which there is."""
    other = torch.accelerator.current_accelerator(check_available=True) if hasattr(torch, "accelerator") else None
    hint = (
        f" (torch has {other.type}: device={other.type!r})" if other is not None and other.type != device.type else ""
    )
    return f"there is no {device.type} device with streams here{hint}"


@cache
def _of(kind: str, index: int) -> Accelerator:
    return Accelerator(torch.device(kind, index))


def milliseconds(start: Any, end: Any) -> float:
    """Between two timed events that are done."""
    return float(start.elapsed_time(end))
