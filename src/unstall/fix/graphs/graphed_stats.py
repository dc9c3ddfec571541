"""Statistics of `graphed`: calls, captures and time saved."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.figures import counted, duration, size
from unstall.fix.graphs.refusals import Refusal
from unstall.fix.wrapped import Printed


@dataclass(frozen=True, slots=True)
class GraphStats:
    """Statistics of one captured graph. Times are medians in s, measured at the capture. In this measurement, eager
    calls and replays took turns."""

    shapes: tuple[tuple[int, ...], ...]
    kind: str
    lanes: int  # streams within the graph; 1: the serial capture was as fast
    operators: int  # operators with device work, which the graph launches at once
    nodes: int | None  # nodes of the graph; None if not known
    capture_seconds: float
    eager_seconds: float
    serial_seconds: float
    parallel_seconds: float | None
    hits: int
    repeatable: bool  # eager and graph give identical bits; if False, they agree as closely as two eager runs
    note: str = ""

    @property
    def graph_seconds(self) -> float:
        return self.parallel_seconds if self.lanes > 1 and self.parallel_seconds else self.serial_seconds

    @property
    def gain(self) -> float:
        """How many times faster the graph is than eager execution: 2.0 is twice as fast."""
        return self.eager_seconds / self.graph_seconds if self.graph_seconds else 1.0


@dataclass(frozen=True, slots=True)
class GraphedStats(Printed):
    """Statistics of one graphed function: sums over all its calls."""

    calls: int = 0
    hits: int = 0  # calls that a graph served
    captures: int = 0
    evictions: int = 0  # graphs beyond max_graphs, the least recently used ones
    graphs: tuple[GraphStats, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    padding_waste: float = 0.0  # share of padding among the elements of padded calls
    pool_bytes: int = 0
    launches_saved: int = 0
    seconds_saved: float = 0.0
    note: str = ""

    @property
    def text(self) -> str:
        lines = [f"{counted(self.calls, 'call')}, {self.hits:,} by a graph, {counted(self.captures, 'capture')}"]
        if self.note:
            lines[0] += f": {self.note}"
        for graph in self.graphs:
            shapes = ", ".join(_shape(shape) for shape in graph.shapes) or "no tensors"
            before, after = graph.eager_seconds * 1e3, graph.graph_seconds * 1e3
            streams = f"{graph.lanes} streams" if graph.lanes > 1 else "1 stream"
            lines.append(
                f"  {shapes}: {before:.3f} → {after:.3f} ms ({graph.gain:.2f} times as fast), {streams}, "
                f"captured in {graph.capture_seconds:.2f} s" + (f"; {graph.note}" if graph.note else "")
            )
        if self.launches_saved:
            spared = duration(round(self.seconds_saved * 1e9))
            lines.append(f"  {counted(self.launches_saved, 'launch')} and about {spared} saved")
        if self.pool_bytes:
            lines.append(f"  {size(self.pool_bytes)} in graphs' memory")
        if self.evictions:
            gone = counted(self.evictions, "graph")
            lines.append(f"  {gone} evicted, least recently used first: a larger max_graphs keeps more")
        if self.padding_waste:
            lines.append(f"  {self.padding_waste:.1%} of what they worked on was padding")
        lines += [f"  runs as it is: {refusal}" for refusal in self.refusals]
        return "\n".join(lines)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


@dataclass(slots=True)
class GraphedCounters:
    """Counters over all calls of a graphed function. For padded calls, `worked_on` counts all elements of the inputs,
    and `padded` counts the elements that are padding."""

    calls: int = 0
    captures: int = 0
    evictions: int = 0
    hits: int = 0
    launches_saved: int = 0
    seconds_saved: float = 0.0
    padded: int = 0
    worked_on: int = 0
