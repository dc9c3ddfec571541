"""Reads the thread blocks of each kernel from a profile. Needs torch."""

from __future__ import annotations

import tempfile
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from unstall.decoding import from_json
from unstall.virtual.costs.occupancy import Block, Launch

if TYPE_CHECKING:
    from torch.profiler import profile


class MeasuredKernel(NamedTuple):
    """A device op of a call.

    Attributes:
        name: Its name.
        ns: How long it took.
        launch: Its thread blocks; None if it is no kernel, or if they are unknown.
    """

    name: str
    ns: int
    launch: Launch | None = None


class _Arguments(msgspec.Struct):
    correlation: int = 0
    grid: list[int] = []
    block: list[int] = []
    registers: int = msgspec.field(default=0, name="registers per thread")
    shared_bytes: int = msgspec.field(default=0, name="shared memory")


class _Event(msgspec.Struct):
    cat: str = ""
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _Trace(msgspec.Struct):
    events: list[msgspec.Raw] = msgspec.field(default_factory=list, name="traceEvents")


def launches(profiler: profile) -> dict[int, Launch]:
    """Returns how each kernel of a profile was launched, by its correlation id."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        text = path.read_bytes()
    found = {}
    for raw in from_json(text, _Trace).events:
        if b'"kernel"' not in bytes(raw):
            continue
        event = from_json(raw, _Event)
        told = event.args
        if event.cat == "kernel" and told.correlation and told.grid and told.block:
            found[told.correlation] = Launch(
                prod(told.grid), Block(prod(told.block), told.registers, told.shared_bytes)
            )
    return found
