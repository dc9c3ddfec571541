"""Statistics of a `stream_map`, and the reason for its strategy."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.figures import counted, duration, size
from unstall.fix.wrapped import Printed


@dataclass(frozen=True, slots=True)
class StreamMapStats(Printed):
    """Statistics of a `stream_map`: sums over all items so far. Times are in ns."""

    items: int
    bytes_in: int
    bytes_out: int
    strategy: str  # "streams", "engines" or "plain"
    in_flight: int
    shrunk: int  # how often memory ran out and the window was halved
    item_ns: dict[str, int]  # strategy → time of an item, measured on the first items
    apart_ns: int | None  # one item's copy in, computation and copy out, added up
    note: str

    @property
    def gain(self) -> float | None:
        """The speedup: `apart_ns` divided by the measured time of an item with the chosen strategy. `apart_ns` is the
        sum of three times of one item: the times of the copy in, of the computation and of the copy out. None if the
        times were not measured."""
        mine = self.item_ns.get(self.strategy)
        return self.apart_ns / mine if self.apart_ns and mine else None

    @property
    def text(self) -> str:
        lines = [
            f"{counted(self.items, 'item')}, {size(self.bytes_in)} to the device and {size(self.bytes_out)} back; "
            f"strategy {self.strategy}, up to {self.in_flight} in flight: {self.note}"
        ]
        if self.apart_ns is not None:
            each = ", ".join(f"{name} {duration(ns)}" for name, ns in self.item_ns.items())
            lines.append(
                f"  one item's copies and computation take {duration(self.apart_ns)}"
                + (f"; in flight an item takes: {each}" if each else "")
            )
        if self.shrunk:
            lines.append(f"  memory ran out {counted(self.shrunk, 'time')}")
        return "\n".join(lines)
