"""Reads the GPU's clock frequency, and the reasons that limit it, from NVIDIA's management library
(NVML). The library comes with the driver.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import NamedTuple

_SM = 1  # nvml.h: NVML_CLOCK_SM
# nvml.h: nvmlClocksEventReasons; those that take speed away from what runs.
_REASONS = {
    0x004: "the power cap",
    0x008: "a hardware slowdown",
    0x020: "heat",
    0x040: "heat",
    0x080: "the power brake",
}


class ClockReading(NamedTuple):
    """A GPU's clock frequency at one moment.

    Attributes:
        mhz: The clock frequency in MHz.
        highest_mhz: The highest clock frequency of this GPU in MHz.
        reasons: The reasons why the GPU runs below its highest frequency at this moment.
    """

    mhz: int
    highest_mhz: int
    reasons: tuple[str, ...]


def read(bus_id: str | None) -> ClockReading | None:
    """Reads the clock frequency of the GPU with the PCI bus id `bus_id`, such as
    "00000000:19:00.0". Returns None if the frequency cannot be read.
    """
    library = _library()
    if library is None or bus_id is None:
        return None
    device = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), ctypes.byref(device)):
        return None
    now, highest, reasons = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_ulonglong()
    if library.nvmlDeviceGetClockInfo(device, _SM, ctypes.byref(now)):
        return None
    library.nvmlDeviceGetMaxClockInfo(device, _SM, ctypes.byref(highest))
    library.nvmlDeviceGetCurrentClocksThrottleReasons(device, ctypes.byref(reasons))
    found = dict.fromkeys(text for bit, text in _REASONS.items() if reasons.value & bit)
    return ClockReading(now.value, highest.value, tuple(found))


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return None if library.nvmlInit_v2() else library
    except (OSError, AttributeError):
        return None
