"""The report of `unstall draw`: a step as a graph of operators, its critical path, and the
operators that could run at the same time as the path.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from unstall.diagnose.graph_edges import GraphEdge
from unstall.diagnose.operator_graph import CriticalPart, GraphNode, OperatorGraph
from unstall.document import document as blocks
from unstall.document.document import Block, Column, Document, Prose, Row, Span, Table, words
from unstall.document.plain import plain
from unstall.figures import counted, duration, share, size

_LITTLE = 1.05  # work / span, below which nothing is said of a gain
_NO_DATA = (
    "This run has no accesses to memory, so it is not known which operator needs which data. The graph shows the order "
    "in which streams ran, their waits, and the links from forward to backward operators. `unstall run --gpu h200` "
    "runs the program on a virtual GPU, and records what needs what."
)
_BOUND = (
    "Operators run side by side only if the device has room for them, and if the program puts them on streams. A wait "
    "of the host for a value is not in the graph."
)
_MEANING = {
    "overwrite": "overwrites",
    "stream": "next on its stream",
    "wait": "its stream waits",
    "autograd": "backward of",
}


def document(graph: OperatorGraph) -> Document:
    """Returns the report of `unstall draw`: the graph of one step, with tables of the operators on
    its critical path and of those beside it.
    """
    shown: list[Block] = [
        _parts("On the critical path, longest first", "of the path", _summed(graph.critical), graph.span_ns),
        *([_parts("Beside it", "of all", graph.beside, graph.work_ns)] if graph.beside else []),
    ]
    shown.append(_graph(graph))
    shown.append(Prose((words(_BOUND),), small=True))
    caveats: tuple[Block, ...] = () if graph.knows_data else (Prose((words(Span(_NO_DATA, "warning")),)),)
    return Document(
        title=f"unstall: step {graph.step} as a graph",
        about=(words(Span(graph.path, "subject")), words(Span(_size(graph), "dim"))),
        caveats=caveats,
        summary=_summary(graph),
        blocks=tuple(shown),
        data=graph,
    )


def _size(graph: OperatorGraph) -> str:
    streams = f"on {counted(graph.streams, 'stream')}"
    whole = f"step {graph.step} of {graph.steps:,}: {counted(graph.operators, 'operator')} {streams}"
    return f"{whole}. Drawn as {len(graph.nodes):,} nodes: {graph.folded}" if graph.folded else whole


def _summary(graph: OperatorGraph) -> str:
    if not graph.operators:
        return "This step puts no work on a device."
    work, span = duration(graph.work_ns), duration(graph.span_ns)
    if not graph.knows_data:
        order = f"The work of this step takes {work}, and {span} in the order in which its streams ran."
        return f"{order} At most {counted(graph.most_at_once, 'operator')} could run at once in this order."
    chain = f"The work of this step takes {work}, and its longest chain of operators that need each other {span}."
    ratio = graph.work_ns / max(graph.span_ns, 1)
    if ratio < _LITTLE:
        return f"{chain} So next to nothing of it could run in parallel."
    gain = f"So it could be {ratio:.2f} times as fast at most, if all that can ran in parallel"
    return f"{chain} {gain}: {counted(graph.most_at_once, 'operator')} at once at most."


def _summed(path: Sequence[CriticalPart]) -> list[CriticalPart]:
    """Returns the operators of the critical path, added up by name, source line and direction
    (forward or backward). The one with the most device time comes first.
    """
    total: dict[tuple[str, str, bool], CriticalPart] = {}
    for part in path:
        key = part.name, part.where, part.backward
        was = total.get(key)
        operators, time_ns = (was.operators, was.device_ns) if was else (0, 0)
        total[key] = replace(part, operators=operators + part.operators, device_ns=time_ns + part.device_ns)
    return sorted(total.values(), key=lambda part: -part.device_ns)


def _parts(title: str, share_of: str, parts: Sequence[CriticalPart], whole_ns: int) -> Table:
    rows = []
    for part in parts:
        name = words(plain(part.name), Span(f" {part.operators:,}x" if part.operators > 1 else "", "dim"))
        where = f"{part.where}{', backward' if part.backward else ''}"
        below = (words(Span(where, "place")),) if where else ()
        rows.append(Row(name, (duration(part.device_ns), share(part.device_ns, whole_ns)), below))
    columns = Column("takes"), Column(share_of)
    return Table(words(title), columns, tuple(rows), limited=True, fold="closed")


def _graph(graph: OperatorGraph) -> blocks.Graph:
    lanes = {stream: lane for lane, stream in enumerate(sorted({each.streams[0] for each in graph.nodes}))}
    title = "Operators, from top to bottom. The critical path is red. The colour at the left is the stream."
    return blocks.Graph(
        words(title),
        tuple(_node(node, lanes) for node in graph.nodes),
        tuple(map(_edge, _one_of_each_pair(graph.edges))),
    )


def _node(node: GraphNode, lanes: dict[int, int]) -> blocks.GraphNode:
    many = f"{node.operators:,} ops" if node.operators > 1 else ""
    at_once = f"{node.at_once:,} at once" if node.at_once > 1 else ""
    backward = "backward" if node.backward else ""
    where = node.where.partition(" ")[0].rpartition("/")[2]
    streams = f"stream{'s' * (len(node.streams) > 1)} {', '.join(map(str, node.streams))}"
    about = (node.name, node.where, backward, many, at_once, duration(node.device_ns), streams)
    below = (duration(node.device_ns), where, many, at_once, backward)
    return blocks.GraphNode(
        text=node.name if node.where else node.name.rpartition("/")[2],
        below=" · ".join(text for text in below if text),
        about=" · ".join(text for text in about if text),
        lane=lanes[node.streams[0]],
        strong=node.critical,
    )


def _one_of_each_pair(edges: Sequence[GraphEdge]) -> list[GraphEdge]:
    """Returns one edge for each pair of connected nodes.

    An edge on the critical path is preferred. If the pair has none, an edge along which data goes
    is preferred to any other.
    """
    best: dict[tuple[int, int], GraphEdge] = {}
    for edge in sorted(edges, key=lambda edge: (not edge.critical, edge.kind != "data")):
        best.setdefault((edge.earlier, edge.later), edge)
    return list(best.values())


def _edge(edge: GraphEdge) -> blocks.GraphLine:
    return blocks.GraphLine(
        earlier=edge.earlier,
        later=edge.later,
        text=size(edge.bytes) if edge.kind == "data" else _MEANING[edge.kind],
        strong=edge.critical,
        dashed=edge.kind != "data",
    )
