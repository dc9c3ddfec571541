"""Statistics of `graphed`: calls, captures and time saved."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.figures import counted, duration, size
from unstall.fix.graphs.refusals import Refusal
from unstall.fix.wrapped import Printed


@dataclass(frozen=True, slots=True)
class GraphStats:
    """Statistics of one captured graph. Times are medians in s, measured when the graph was captured. In this
    measurement, eager calls and replays took turns.

    Attributes:
        shapes: The shapes of the input tensors.
        kind: What the function does: "pure" (it only returns a result), "step" (it changes tensors) or "differentiable"
            (gradients flow through it).
        lanes: The number of streams within the graph.
        operators: The number of operators with device work. The graph launches all of them together.
        nodes: The number of nodes of the graph. None if it is unknown.
        capture_seconds: The time for the capture, with all tests and measurements.
        eager_seconds: The time of an eager call.
        serial_seconds: The time of a replay of the graph on one stream.
        parallel_seconds: The time of a replay of the fastest graph on several streams. None if there is none.
        hits: The number of calls that the graph served.
        repeatable: True if eager calls and replays give identical bits. False if they agree as closely as two eager
            calls.
        note: A remark. "" if there is none.
    """

    shapes: tuple[tuple[int, ...], ...]
    kind: str
    lanes: int
    operators: int
    nodes: int | None
    capture_seconds: float
    eager_seconds: float
    serial_seconds: float
    parallel_seconds: float | None
    hits: int
    repeatable: bool
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
    """Statistics of one graphed function. Numbers and times are sums over all its calls so far.

    Attributes:
        calls: The number of calls.
        hits: The number of calls that a graph served.
        captures: The number of captures.
        evictions: The number of graphs that were dropped because there were more than `max_graphs`.
        graphs: Statistics of each graph that is kept.
        refusals: The reasons why calls run eagerly.
        padding_waste: The share of padding among all elements of the inputs of padded calls, from 0 to 1.
        pool_bytes: The bytes in the memory pools of the graphs.
        launches_saved: The number of launches that the host did not have to make.
        seconds_saved: The time that graphs saved, in s, according to the measurement at the capture.
        note: A remark. "" if there is none.
    """

    calls: int = 0
    hits: int = 0
    captures: int = 0
    evictions: int = 0
    graphs: tuple[GraphStats, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    padding_waste: float = 0.0
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
            shapes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in graph.shapes) or "no tensors"
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
