"""The options of a virtual machine, and how they reach child processes."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from unstall.errors import UsageError

Numerics: TypeAlias = Literal["real", "skip", "device"]
HostClock: TypeAlias = Literal["modelled", "mixed", "measured"]
NUMERICS: tuple[Numerics, ...] = get_args(Numerics)
HOST_CLOCKS: tuple[HostClock, ...] = get_args(HostClock)
MOST_DEVICES = 16  # torch's peer tables have this size
LEAST_CLOCK = 0.01
_CLOCKS = re.compile(r"(?:,\d+@\d*\.?\d+)+$")

ENVIRONMENT = "UNSTALL_VIRTUAL_GPU"
"""The environment variable that passes the options to child processes."""


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """One virtual machine.

    Attributes:
        gpu: The name of the machine's GPUs, or their .json file.
        devices: The number of GPUs.
        numerics: "real" computes all values as the CPU does. "skip" computes no values of large tensors. "device"
            rounds and adds up values as a GPU does.
        host: Where the times of CPU work come from. "modelled" uses the GPU's file. "measured" measures the work on
            this machine. "mixed" uses the GPU's file for operators and calls that involve a device. For all other work,
            "mixed" measures the work on this machine and scales the time.
        warm: If True, the first uses of CUDA and of each operator have no extra cost.
        clocks: (device, factor) of each device whose clocks are lower: its kernels take 1 / factor as long. Copies over
            the bus and transfers between GPUs take as long as ever.
    """

    gpu: str = "h200"
    devices: int = 1
    numerics: Numerics = "real"
    host: HostClock = "modelled"
    warm: bool = False
    clocks: tuple[tuple[int, float], ...] = ()

    def metadata(self) -> dict[str, object]:
        """Returns the options as an entry of a trace's metadata."""
        return {"virtual": asdict(self)}

    def __str__(self) -> str:
        warm = ", warm" if self.warm else ""
        clocks = "".join(f",{device}@{factor:g}" for device, factor in self.clocks)
        return f"{self.gpu}:{self.devices}{clocks}, numerics {self.numerics}, host {self.host}{warm}"

    def to_json(self) -> str:
        """Returns the options as one line of ASCII, for an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MachineOptions:
        """Parses a text that `to_json` returned. Raises ValueError or TypeError for any other text."""
        told = json.loads(text)
        told["clocks"] = tuple((device, factor) for device, factor in told.get("clocks", ()))
        return cls(**told)


def parse(gpu: str, numerics: str = "real", host: str = "modelled", warm: bool = False) -> MachineOptions:
    """Parses a user's options. `gpu` is "h200", "h200:2" for two devices, "h200:2,1@0.8" for two of which device 1 runs
    at 0.8 of its clocks, or a .json file. Raises UsageError if an option is invalid.
    """
    whole = gpu
    slower = found[0] if (found := _CLOCKS.search(gpu)) else ""
    gpu = gpu.removesuffix(slower)
    name, colon, count = gpu.rpartition(":") if ":" in gpu else (gpu, "", "")
    if not name or (colon and not (count.isdecimal() and 1 <= int(count) <= MOST_DEVICES)):
        raise UsageError(f"gpu: {gpu!r}: give a GPU's name, or its name and how many, from 1 to {MOST_DEVICES}: h200:2")
    clocks = _clocks_in(slower, int(count or 1), whole)
    for what, value, known in (("numerics", numerics, NUMERICS), ("host", host, HOST_CLOCKS)):
        if value not in known:
            raise UsageError(f"{what}: {value!r} is none of {', '.join(known)}")
    own = name.endswith(".json")  # absolute, so that child processes find the file from any folder
    name = str(Path(name).absolute()) if own else name.lower()
    return MachineOptions(name, int(count or 1), numerics, host, warm, clocks)  # type: ignore[arg-type]


def _clocks_in(text: str, devices: int, gpu: str) -> tuple[tuple[int, float], ...]:
    """Parses ",3@0.8,4@0.9". Raises UsageError if a device does not exist, or comes twice, or for another factor."""
    pairs = [pair.split("@") for pair in text.split(",")[1:]]
    clocks = tuple((int(device), float(factor)) for device, factor in pairs)
    numbers = {device for device, _ in clocks}
    if len(numbers) < len(clocks) or not all(
        device < devices and LEAST_CLOCK <= factor <= 1 for device, factor in clocks
    ):
        raise UsageError(
            f"gpu: {gpu!r}: after the comma, give a device and its part of the clocks, from {LEAST_CLOCK:g} to 1, each "
            f"device once: h200:{max(devices, 2)},1@0.8"
        )
    return clocks
