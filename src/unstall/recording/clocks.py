"""Reads the clock frequencies of the GPUs by NVML, to show whether a device kept its speed while it
was recorded.

NVML comes with the driver. Its functions are called with ctypes because its ABI is stable: a
function keeps its signature, and a changed function gets a suffix (`_v2`).
https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Required, TypedDict, cast

_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0  # NVML_SUCCESS
_SM, _MEMORY = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU
_TEXT_BYTES = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE

# nvmlClocksEventReason…, by bit. Drivers before 535 call them nvmlClocksThrottleReason….
_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
    "board_limit",
    "reliability",
)
_NO_THROTTLING = {"gpu_idle", "applications_clocks_setting"}  # harmless: no work, or clocks set by a user
_CHANGED = 0.05  # of the SM clock; an undisturbed GPU varies by 15 MHz, under 1 %


class GpuClocks(TypedDict, total=False):
    """The clock frequencies of one GPU at one moment, and what limits them. Keys whose values the
    driver does not know are missing. Only `index`, NVML's index of the GPU, is always present.
    """

    index: Required[int]
    uuid: str
    pci_bus_id: str
    name: str
    sm_mhz: int
    mem_mhz: int
    max_sm_mhz: int
    max_mem_mhz: int
    temperature_c: int
    power_w: float
    reasons: list[str]


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t, as filled by nvmlDeviceGetPciInfo_v3."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


def read_clocks(library: str | Path = _LIBRARY) -> list[GpuClocks]:
    """Returns the clock frequencies of every GPU that the driver shows, whether or not this process
    uses it. Returns an empty list without NVML. Never raises.

    The key `reasons` of a GPU says, in the driver's words, why its clocks are not higher. A GPU
    that is not throttled may also have `reasons`. Do not call this function within a timed step: it
    starts NVML and shuts it down, which takes time.
    """
    try:
        nvml = ctypes.CDLL(str(library))
    except OSError:
        return []
    if not _call(nvml, "nvmlInit_v2"):
        return []
    try:
        count = ctypes.c_uint()
        if not _call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count)):
            return []
        devices = (_read_device(nvml, index) for index in range(count.value))
        return [device for device in devices if device is not None]
    finally:
        _call(nvml, "nvmlShutdown")


def throttled(before: Sequence[GpuClocks], after: Sequence[GpuClocks]) -> list[str]:
    """Returns a sentence for each GPU that was throttled, or whose SM clock changed by more than 5
    %.

    Args:
        before: The clocks before the recording.
        after: The clocks after the recording. An idle GPU lowers its clock. So a change does not
            count if the GPU was idle in `before` or in `after`.
    """
    earlier = {_identity(device): device for device in before}
    pairs = ((earlier[_identity(device)], device) for device in after if _identity(device) in earlier)
    sentences = (_sentence(first, last) for first, last in pairs)
    return [sentence for sentence in sentences if sentence is not None]


def _call(nvml: ctypes.CDLL, name: str, *arguments: Any) -> bool:
    """Calls the function `name` of NVML. Returns whether NVML has this function and the call succeeded."""
    function = getattr(nvml, name, None)
    return function is not None and function(*arguments) == _SUCCESS


def _read_device(nvml: ctypes.CDLL, index: int) -> GpuClocks | None:
    """Returns the clocks of the GPU with this index. Returns None if this user may not see the GPU,
    or if the GPU fell off the bus.
    """
    device = ctypes.c_void_p()
    if not _call(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device)):
        return None
    pci = _PciInfo()
    known_pci = _call(nvml, "nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci))
    power_mw = _number(nvml, "nvmlDeviceGetPowerUsage", device)
    found: dict[str, object] = {
        "index": index,
        "uuid": _text(nvml, "nvmlDeviceGetUUID", device),
        "pci_bus_id": pci.bus_id.decode(errors="replace") if known_pci else None,
        "name": _text(nvml, "nvmlDeviceGetName", device),
        "sm_mhz": _number(nvml, "nvmlDeviceGetClockInfo", device, _SM),
        "mem_mhz": _number(nvml, "nvmlDeviceGetClockInfo", device, _MEMORY),
        "max_sm_mhz": _number(nvml, "nvmlDeviceGetMaxClockInfo", device, _SM),
        "max_mem_mhz": _number(nvml, "nvmlDeviceGetMaxClockInfo", device, _MEMORY),
        "temperature_c": _number(nvml, "nvmlDeviceGetTemperature", device, _GPU_SENSOR),
        "power_w": None if power_mw is None else power_mw / 1000,
        "reasons": _reasons(nvml, device),
    }
    return cast("GpuClocks", {key: value for key, value in found.items() if value is not None})


def _number(nvml: ctypes.CDLL, name: str, device: ctypes.c_void_p, *which: int) -> int | None:
    value = ctypes.c_uint()
    known = _call(nvml, name, device, *map(ctypes.c_uint, which), ctypes.byref(value))
    return value.value if known else None


def _text(nvml: ctypes.CDLL, name: str, device: ctypes.c_void_p) -> str | None:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    known = _call(nvml, name, device, text, ctypes.c_uint(_TEXT_BYTES))
    return text.value.decode(errors="replace") if known else None


def _reasons(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> list[str] | None:
    mask = ctypes.c_ulonglong()
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    if not any(_call(nvml, name, device, ctypes.byref(mask)) for name in names):
        return None
    return [_reason(bit) for bit in range(mask.value.bit_length()) if mask.value >> bit & 1]


def _reason(bit: int) -> str:
    """Returns the name of the throttling reason with this bit number. A reason without a known name is "reason_BIT"."""
    return _REASONS[bit] if bit < len(_REASONS) else f"reason_{bit}"


def _identity(device: GpuClocks) -> str | int:
    return device.get("uuid", device["index"])


def _sentence(before: GpuClocks, after: GpuClocks) -> str | None:
    """Returns a sentence on one GPU. Returns None if the GPU was not throttled and kept its speed."""
    reasons = list(dict.fromkeys((*before.get("reasons", ()), *after.get("reasons", ()))))
    causes = [reason for reason in reasons if reason not in _NO_THROTTLING]
    if causes:
        return f"{_title(after)} was throttled by {', '.join(causes)}{_speeds(before, after)}"
    if "gpu_idle" not in reasons and _changed(before, after):
        return f"{_title(after)} changed its speed{_speeds(before, after)}"
    return None


def _changed(before: GpuClocks, after: GpuClocks) -> bool:
    first, last = before.get("sm_mhz"), after.get("sm_mhz")
    return first is not None and last is not None and abs(last - first) > _CHANGED * first


def _speeds(before: GpuClocks, after: GpuClocks) -> str:
    first, last, most = before.get("sm_mhz"), after.get("sm_mhz"), after.get("max_sm_mhz")
    if first is None or last is None:
        return ""
    return f": its SM clock was {first:,} MHz, then {last:,} MHz" + (f", of at most {most:,} MHz" if most else "")


def _title(device: GpuClocks) -> str:
    """Returns the name of a GPU for sentences, such as `GPU 0 (NVIDIA H200)`. nvidia-smi uses the same index."""
    return f"GPU {device['index']} ({device['name']})" if "name" in device else f"GPU {device['index']}"
