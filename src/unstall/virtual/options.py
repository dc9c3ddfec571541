"""The options of a virtual machine, and how they reach child processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from unstall.errors import UsageError

Numerics: TypeAlias = Literal["real", "skip", "device"]
HostClock: TypeAlias = Literal["modelled", "mixed", "measured"]
NUMERICS: tuple[Numerics, ...] = get_args(Numerics)
HOST_CLOCKS: tuple[HostClock, ...] = get_args(HostClock)
MOST_DEVICES = 16  # torch's peer tables have this size

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
    """

    gpu: str = "h200"
    devices: int = 1
    numerics: Numerics = "real"
    host: HostClock = "modelled"
    warm: bool = False

    def metadata(self) -> dict[str, object]:
        """Returns the options as an entry of a trace's metadata."""
        return {"virtual": asdict(self)}

    def __str__(self) -> str:
        warm = ", warm" if self.warm else ""
        return f"{self.gpu}:{self.devices}, numerics {self.numerics}, host {self.host}{warm}"

    def to_json(self) -> str:
        """Returns the options as one line of ASCII, for an environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MachineOptions:
        """Parses a text that `to_json` returned. Raises ValueError or TypeError for any other text."""
        return cls(**json.loads(text))


def parse(gpu: str, numerics: str = "real", host: str = "modelled", warm: bool = False) -> MachineOptions:
    """Parses a user's options. `gpu` is "h200", "h200:2" for two devices, or a .json file. Raises UsageError if an
    option is invalid.
    """
    name, colon, count = gpu.rpartition(":") if ":" in gpu else (gpu, "", "")
    if not name or (colon and not (count.isdecimal() and 1 <= int(count) <= MOST_DEVICES)):
        raise UsageError(f"gpu: {gpu!r}: give a GPU's name, or its name and how many, from 1 to {MOST_DEVICES}: h200:2")
    for what, value, known in (("numerics", numerics, NUMERICS), ("host", host, HOST_CLOCKS)):
        if value not in known:
            raise UsageError(f"{what}: {value!r} is none of {', '.join(known)}")
    own = name.endswith(".json")  # absolute, so that child processes find the file from any folder
    name = str(Path(name).absolute()) if own else name.lower()
    return MachineOptions(name, int(count or 1), numerics, host, warm)  # type: ignore[arg-type]
