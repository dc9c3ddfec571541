"""The options of a virtual machine, and the environment variable that passes them to child processes."""

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
"""The environment variable that passes the options of the virtual machine to child processes."""


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """The options of a virtual machine.

    Attributes:
        gpu: The name of the machine's GPUs, or the path of their .json file.
        devices: The number of GPUs.
        numerics: Which values are computed, and how. "real": all values, as the CPU does. "skip":
            the values of small tensors only. "device": all values, rounded and added up as a GPU
            does.
        host: How long work of the CPU takes. "modelled": as long as the file of the GPU says.
            "measured": as long as it takes on this machine. "mixed": as long as the file of the GPU
            says for operators and for calls that involve a device; other work is measured on this
            machine, and its time is scaled to the CPU that the file describes.
        warm: Whether the extra cost of the first use of CUDA and of each operator is left out.
        clocks: A pair `(device, factor)` for each device with lower clock rates. Its kernels take 1
            / factor times as long. Copies between host and device, and transfers between GPUs, are
            not slower.
    """

    gpu: str = "h200"
    devices: int = 1
    numerics: Numerics = "real"
    host: HostClock = "modelled"
    warm: bool = False
    clocks: tuple[tuple[int, float], ...] = ()

    def metadata(self) -> dict[str, object]:
        """Returns the options as an entry of a trace's metadata: the key is "virtual", and the
        value has the fields of this class.
        """
        return {"virtual": asdict(self)}

    def __str__(self) -> str:
        warm = ", warm" if self.warm else ""
        clocks = "".join(f",{device}@{factor:g}" for device, factor in self.clocks)
        return f"{self.gpu}:{self.devices}{clocks}, numerics {self.numerics}, host {self.host}{warm}"

    def to_json(self) -> str:
        """Returns the options as one line of ASCII that fits into an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MachineOptions:
        """Parses a text that `to_json` returned. Raises ValueError or TypeError for any other text."""
        told = json.loads(text)
        told["clocks"] = tuple((device, factor) for device, factor in told.get("clocks", ()))
        return cls(**told)


def parse(gpu: str, numerics: str = "real", host: str = "modelled", warm: bool = False) -> MachineOptions:
    """Returns the options that a user gave. Raises UsageError if one of them is not valid.

    Args:
        gpu: The name of a GPU, such as "h200", or the path of a .json file. ":2" after it asks for
            two devices. ",1@0.8" after that lets device 1 run at 0.8 of its clock rates.
        numerics: "real", "skip" or "device"; see `MachineOptions`.
        host: "modelled", "mixed" or "measured"; see `MachineOptions`.
        warm: Whether the extra cost of first uses is left out.
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
    """Parses a text such as ",3@0.8,4@0.9": device 3 runs at 0.8 of its clock rates, device 4 at
    0.9.

    Args:
        text: The text.
        devices: How many devices the machine has.
        gpu: The whole option of the user, for the error message.

    Returns:
        A pair `(device, factor)` for each device in the text.

    Raises:
        UsageError: A device does not exist or comes twice, or a factor is not between LEAST_CLOCK
            and 1.
    """
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
