"""The options of a virtual machine, and how they reach child processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from unstall.errors import UsageError

Numerics: TypeAlias = Literal["real", "skip"]
HostClock: TypeAlias = Literal["modelled", "measured"]
NUMERICS: tuple[Numerics, ...] = get_args(Numerics)
HOST_CLOCKS: tuple[HostClock, ...] = get_args(HostClock)
MOST_DEVICES = 16  # a CUDA device's index fits an int8, and torch's tables of peers are made for so many

ENVIRONMENT = "UNSTALL_VIRTUAL_GPU"
"""The environment variable with the parent's options."""


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """One virtual machine: `devices` GPUs named `gpu`.

    `numerics`: compute all values, or skip large ones. `host`: charge the program's own work as modelled for the GPU's
    host, or as measured on this one.
    """

    gpu: str = "h200"
    devices: int = 1
    numerics: Numerics = "real"
    host: HostClock = "modelled"

    def metadata(self) -> dict[str, object]:
        """The entry of a trace's metadata."""
        return {"virtual": asdict(self)}

    def __str__(self) -> str:
        return f"{self.gpu}:{self.devices}, numerics {self.numerics}, host {self.host}"

    def to_json(self) -> str:
        """One line of ASCII, as an environment variable can hold it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MachineOptions:
        """Options from the text of `to_json`. Raises ValueError or TypeError for another text."""
        return cls(**json.loads(text))


def parse(gpu: str, numerics: str = "real", host: str = "modelled") -> MachineOptions:
    """Options by a user's words: "h200", a GPU's .json file, "h200:2" for two. Raises UsageError if they are wrong."""
    name, colon, count = gpu.rpartition(":") if ":" in gpu else (gpu, "", "")
    if not name or (colon and not (count.isdecimal() and 1 <= int(count) <= MOST_DEVICES)):
        raise UsageError(f"gpu: {gpu!r}: give a GPU's name, or its name and how many, from 1 to {MOST_DEVICES}: h200:2")
    for what, value, known in (("numerics", numerics, NUMERICS), ("host", host, HOST_CLOCKS)):
        if value not in known:
            raise UsageError(f"{what}: {value!r} is none of {', '.join(known)}")
    own = name.endswith(".json")  # a file of the user's; in child processes too, wherever they are
    name = str(Path(name).absolute()) if own else name.lower()
    return MachineOptions(name, int(count or 1), numerics, host)  # type: ignore[arg-type]
