"""Statistics of a `stream_map`, and the reason for its strategy."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.figures import counted, duration, size
from unstall.fix.wrapped import Printed


@dataclass(frozen=True, slots=True)
class StreamMapStats(Printed):
    """Statistics of a `stream_map`. Numbers and bytes are sums over all items so far. Times are in ns.

    Attributes:
        items: The number of items.
        bytes_in: The bytes that were copied to the device.
        bytes_out: The bytes that were copied to the host.
        strategy: How items are handled. "engines": one stream copies items in, one computes, one copies results out.
            "streams": each item has one of several streams. "plain": all work is on the program's current stream.
        in_flight: How many items may be in flight at a time.
        shrunk: How often memory ran out, so that `in_flight` was halved.
        item_ns: The time of one item with each strategy that was measured, by the name of the strategy.
        apart_ns: The time of one item if nothing overlaps: the sum of its copy in, its computation and its copy out.
            None if it was not measured.
        note: Why `strategy` was chosen.
    """

    items: int
    bytes_in: int
    bytes_out: int
    strategy: str
    in_flight: int
    shrunk: int
    item_ns: dict[str, int]
    apart_ns: int | None
    note: str

    @property
    def gain(self) -> float | None:
        """The speedup by overlap: `apart_ns`, divided by the measured time of an item with the chosen strategy.
        `apart_ns` is the time of one item if nothing overlaps. None if one of the times was not measured."""
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
