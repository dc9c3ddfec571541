"""Clocks through NVML, from a library of that ABI which is built here: no GPU is needed, and its figures are known."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from unstall.recording.clocks import GpuClocks, read_clocks, throttled

# Two devices, and a third that the user may not open (NVML_ERROR_NO_PERMISSION is 4, NVML_ERROR_NOT_SUPPORTED 3).
NVML = r"""
#ifndef EMPTY
#include <string.h>
typedef struct { int index; } *Device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
static struct { int index; } devices[2] = {{0}, {1}};
static int running;
static int at(Device d) { return running ? d->index : -1; }
int nvmlInit_v2(void) { running++; return 0; }
int nvmlShutdown(void) { running--; return 0; }
int runs(void) { return running; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Device *d) { if (i > 1) return 4; *d = (Device)&devices[i]; return 0; }
int nvmlDeviceGetClockInfo(Device d, int type, unsigned *mhz) {
    if (type != 1 && type != 2) return 2;
    *mhz = type == 1 ? 1980 - 15 * at(d) : 3201;
    return 0;
}
int nvmlDeviceGetMaxClockInfo(Device d, int type, unsigned *mhz) { *mhz = type == 1 ? 1995 : 3202; return 0; }
int nvmlDeviceGetTemperature(Device d, int sensor, unsigned *c) { if (sensor) return 2; *c = 41 + at(d); return 0; }
#ifndef OLD
int nvmlDeviceGetName(Device d, char *to, unsigned size) { strncpy(to, "NVIDIA H200", size); return 0; }
int nvmlDeviceGetUUID(Device d, char *to, unsigned size) {
    strncpy(to, at(d) ? "GPU-b1" : "GPU-a0", size);
    return 0;
}
int nvmlDeviceGetPciInfo_v3(Device d, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    strcpy(pci->legacy, "0000:19:00.0");
    pci->domain = pci->bus = pci->device = pci->id = pci->subsystem = 0x41414141;
    strcpy(pci->bus_id, at(d) ? "00000000:3B:00.0" : "00000000:19:00.0");
    return 0;
}
int nvmlDeviceGetPowerUsage(Device d, unsigned *mw) { if (at(d)) return 3; *mw = 612345; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(Device d, unsigned long long *mask) {
    *mask = at(d) ? 1ull << 40 | 0x44 : 0x3;
    return 0;
}
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long *mask) { *mask = 0x20; return 0; }
#endif
#endif
"""

Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """`build(*flags)` compiles the library and tells where it is."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc to build an NVML with")
    folder = tmp_path_factory.mktemp("nvml")

    def compile_with(*flags: str) -> Path:
        library = folder / f"libnvidia-ml{'_'.join(flags)}.so"
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), *flags]
        subprocess.run(command, input=NVML, text=True, check=True, capture_output=True)
        return library

    return compile_with


def test_each_device_with_all_that_nvml_tells(build: Build) -> None:
    first, second = read_clocks(build())
    assert first == {
        "index": 0,
        "uuid": "GPU-a0",
        "pci_bus_id": "00000000:19:00.0",
        "name": "NVIDIA H200",
        "sm_mhz": 1980,
        "mem_mhz": 3201,
        "max_sm_mhz": 1995,
        "max_mem_mhz": 3202,
        "temperature_c": 41,
        "power_w": 612.345,
        "reasons": ["gpu_idle", "applications_clocks_setting"],
    }
    assert (second["uuid"], second["sm_mhz"], second["temperature_c"]) == ("GPU-b1", 1965, 42)


def test_what_a_device_does_not_support_has_no_key(build: Build) -> None:
    assert "power_w" not in read_clocks(build())[1]


def test_a_reason_that_is_not_known_yet_goes_by_its_bit(build: Build) -> None:
    assert read_clocks(build())[1]["reasons"] == ["sw_power_cap", "hw_thermal_slowdown", "reason_40"]


def test_an_older_driver_lacks_functions_and_names_reasons_otherwise(build: Build) -> None:
    device = read_clocks(build("-DOLD"))[0]
    assert device["reasons"] == ["sw_thermal_slowdown"]
    assert set(device) == {"index", "sm_mhz", "mem_mhz", "max_sm_mhz", "max_mem_mhz", "temperature_c", "reasons"}


def test_nvml_is_left_as_it_was_found(build: Build) -> None:
    library = build()
    read_clocks(library)
    assert ctypes.CDLL(str(library)).runs() == 0


def test_without_nvml_there_are_no_devices(tmp_path: Path) -> None:
    assert read_clocks(tmp_path / "libnvidia-ml.so.1") == []


def test_a_file_that_is_no_library_has_no_devices(tmp_path: Path) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_text("not a library")
    assert read_clocks(library) == []


def test_a_library_that_is_not_nvml_has_no_devices(build: Build) -> None:
    assert read_clocks(build("-DEMPTY")) == []


def _device(sm_mhz: int, reasons: Sequence[str] = (), index: int = 0, uuid: str = "GPU-a0") -> GpuClocks:
    return GpuClocks(index=index, uuid=uuid, name="NVIDIA H200", sm_mhz=sm_mhz, max_sm_mhz=1980, reasons=[*reasons])


def test_a_device_at_one_speed_is_not_spoken_of() -> None:
    assert throttled([_device(1980)], [_device(1881)]) == []  # 5.0 % less


def test_a_clock_that_changed_by_more_than_a_twentieth_is_said() -> None:
    assert throttled([_device(1980)], [_device(1880)]) == [
        "GPU 0 (NVIDIA H200) changed its speed: its SM clock was 1,980 MHz, then 1,880 MHz, of at most 1,980 MHz"
    ]


def test_a_device_throttled_at_either_moment_is_said_with_every_reason_once() -> None:
    before = _device(1980, ["sw_power_cap"])
    after = _device(1980, ["sw_power_cap", "hw_thermal_slowdown"])
    (sentence,) = throttled([before], [after])
    assert sentence.startswith("GPU 0 (NVIDIA H200) was throttled by sw_power_cap, hw_thermal_slowdown: ")


def test_a_device_that_fell_idle_was_not_throttled() -> None:
    assert throttled([_device(1980)], [_device(345, ["gpu_idle"])]) == []


def test_clocks_set_by_somebody_are_no_throttling() -> None:
    setting = ["applications_clocks_setting"]
    assert throttled([_device(1200, setting)], [_device(1200, setting)]) == []


def test_devices_are_matched_by_uuid_and_not_by_place() -> None:
    before = [_device(1980, uuid="GPU-a0"), _device(1200, index=1, uuid="GPU-b1")]
    after = [_device(1200, uuid="GPU-b1"), _device(1980, index=1, uuid="GPU-a0")]
    assert throttled(before, after) == []


def test_a_device_of_which_little_is_known_is_still_spoken_of() -> None:
    before, after = GpuClocks(index=3), GpuClocks(index=3, reasons=["hw_slowdown"])
    assert throttled([before], [after]) == ["GPU 3 was throttled by hw_slowdown"]


def test_a_device_seen_only_once_is_left_out() -> None:
    assert throttled([], [_device(1200, ["hw_slowdown"])]) == []
