"""A step as a graph: edges, critical path, what could run at once, and how it is folded; by hand."""

from __future__ import annotations

from pathlib import Path as File
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec.structs import replace
from traces import TraceBuilder

from unstall.answers.drawn import Drawn
from unstall.answers.explain import explain
from unstall.answers.report import Report
from unstall.diagnose.graph_folding import MOST_NODES, Path, folded
from unstall.diagnose.operator_graph import OperatorGraph
from unstall.errors import UsageError
from unstall.timeline.columns import Dependencies, HostKind, Timeline

Needs = list[tuple[int, int, int]]  # earlier and later operator of a step, bytes


def _run(times: list[float], needs: Needs = [], streams: list[int] | None = None) -> Timeline:  # noqa: B006
    """Two steps of operators op0, op1 …, each at a line of its own, with one kernel of so many µs."""
    trace = TraceBuilder()
    for _ in range(2):
        with trace.step():
            for number, us in enumerate(times):
                with trace.frame("train.py", 10 + number, "step"), trace.op(f"aten::op{number}"):
                    trace.launch(device_us=us, stream=streams[number] if streams else 7)
    timeline = trace.timeline()
    ops = np.flatnonzero(timeline.host.kind == HostKind.OP).astype(np.int32)
    rows = [(ops[step + a], ops[step + b], size) for step in (0, len(times)) for a, b, size in needs]
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    table = Dependencies(columns[0].astype(np.int32), columns[1].astype(np.int32), columns[2])
    return replace(timeline, dependencies=table)


def _graph(timeline: Timeline, step: int = 1) -> OperatorGraph:
    return Drawn.of(explain(timeline), step).graph


#          0
#        /   \
#       1     2   → 3
_FORK: Needs = [(0, 1, 64), (0, 2, 64), (1, 3, 32), (2, 3, 0)]


def test_the_critical_path_is_the_longest_chain_of_what_needs_each_other() -> None:
    graph = _graph(_run([10, 50, 20, 5], _FORK))

    assert (graph.work_ns, graph.span_ns) == (85_000, 65_000)
    assert [part.name for part in graph.critical] == ["aten::op0", "aten::op1", "aten::op3"]
    assert [(part.name, part.device_ns) for part in graph.beside] == [("aten::op2", 20_000)]
    assert [node.critical for node in graph.nodes] == [True, True, False, True]


def test_edges_are_data_with_bytes_or_what_is_overwritten() -> None:
    graph = _graph(_run([10, 50, 20, 5], _FORK))

    assert [(edge.earlier, edge.later, edge.kind, edge.bytes, edge.critical) for edge in graph.edges] == [
        (0, 1, "data", 64, True),
        (0, 2, "data", 64, False),
        (1, 3, "data", 32, True),
        (2, 3, "overwrite", 0, False),
    ]


@pytest.mark.parametrize(("needs", "most"), [(_FORK, 2), ([(0, 1, 1), (1, 2, 1), (2, 3, 1)], 1), ([(0, 1, 1)], 3)])
def test_most_at_once_is_what_runs_if_each_begins_as_soon_as_it_can(needs: Needs, most: int) -> None:
    assert _graph(_run([10, 50, 20, 5], needs)).most_at_once == most


def test_needs_of_another_step_are_no_edges() -> None:
    timeline = _run([10, 50], [(0, 1, 8)])
    both = timeline.dependencies
    across = Dependencies(both.earlier[[0, 0]], both.later[[0, 1]], both.bytes)

    assert len(_graph(replace(timeline, dependencies=across)).edges) == 1


def test_without_data_the_order_of_streams_makes_the_graph_and_the_report_says_so() -> None:
    drawn = Drawn.of(explain(_run([10, 50, 20, 5], streams=[7, 9, 7, 9])), 1)

    assert not drawn.graph.knows_data
    assert [(edge.earlier, edge.later, edge.kind) for edge in drawn.graph.edges] == [(0, 2, "stream"), (1, 3, "stream")]
    assert (drawn.graph.span_ns, drawn.graph.streams, drawn.graph.most_at_once) == (55_000, 2, 2)
    assert "it is not known which operator needs which data" in " ".join(str(drawn).split())


def test_a_wait_of_a_stream_is_an_edge() -> None:
    trace = TraceBuilder()
    for _ in range(2):
        with trace.step():
            with trace.op("aten::first"):
                trace.launch(device_us=10, stream=7)
            event = trace.record(stream=7)
            trace.stream_wait(event, stream=9)
            with trace.op("aten::second"):
                trace.launch(device_us=10, stream=9)
    graph = _graph(trace.timeline())

    assert ("wait", 0, 1) in [(edge.kind, edge.earlier, edge.later) for edge in graph.edges]
    assert graph.span_ns == 20_000


def test_the_step_is_the_one_asked_for_or_the_median() -> None:
    report = explain(_run([10, 50], [(0, 1, 8)]))

    assert Drawn.of(report).graph.step in (1, 2)
    with pytest.raises(UsageError, match="has the steps 1 to 2"):
        Drawn.of(report, 3)
    with pytest.raises(UsageError, match="holds no events"):
        Drawn.of(Report(report.result, None))


def _paths(lines: list[int], callers: list[int] | None = None) -> list[Path]:
    return [Path((callers[at] if callers else 0, line), backward=False) for at, line in enumerate(lines)]


def test_equal_operators_that_could_run_at_once_are_one_node() -> None:
    """Ten images, each copied and then scaled; all are added at the end."""
    names = ["copy", "scale"] * 10 + ["add"]
    edges = [(at, at + 1) for at in range(0, 20, 2)] + [(at, 20) for at in range(1, 20, 2)]
    fold = folded(names, _paths([1, 1] * 10 + [2]), edges)

    assert fold.node == [0, 1] * 10 + [2]
    assert "one node" in fold.how


def test_equal_operators_of_a_chain_stay_apart() -> None:
    fold = folded(["add"] * 6, _paths([1] * 6), [(at, at + 1) for at in range(5)])
    assert (fold.node, fold.how) == ([0, 1, 2, 3, 4, 5], "")


def test_a_long_step_is_folded_by_line_and_then_by_the_lines_that_call() -> None:
    """Layers of three lines with two operators each: at least three nodes a layer by line, and one by caller."""
    for layers, how in ((50, "by line"), (150, "by the lines that call them")):
        lines = [line for _ in range(layers) for line in (1, 1, 2, 2, 3, 3)]
        callers = [100 + layer for layer in range(layers) for _ in range(6)]
        names = [f"op{at}" for at in range(len(lines))]
        fold = folded(names, _paths(lines, callers), [(at, at + 1) for at in range(len(lines) - 1)])
        assert fold.how == f"folded {how}"
        assert layers <= len(set(fold.node)) <= MOST_NODES
        assert fold.node == sorted(fold.node)


def test_whatever_the_step_there_are_few_nodes() -> None:
    names = [f"op{at}" for at in range(5_000)]
    paths = [Path((at % 7,), backward=False) for at in range(5_000)]
    fold = folded(names, paths, [(at, at + 1) for at in range(4_999)])
    assert len(set(fold.node)) <= MOST_NODES


def test_the_report_fits_80_columns_and_gives_work_and_span() -> None:
    text = str(Drawn.of(explain(_run([10, 50, 20, 5], _FORK)), 1))

    said = " ".join(text.split())
    assert "takes 85.0 µs, and its longest chain of operators that need each other 65.0 µs" in said
    assert "1.31 times as fast at most" in said
    assert "2 operators at once at most" in said
    assert max(map(len, text.splitlines())) <= 80


def test_a_chain_could_not_run_in_parallel() -> None:
    text = str(Drawn.of(explain(_run([10, 50], [(0, 1, 8)])), 1))
    assert "next to nothing of it could run in parallel" in text.replace("\n", " ")


def test_the_svg_has_each_node_and_edge_and_highlights_the_path(tmp_path: File) -> None:
    from unstall.document.formats import write

    document = Drawn.of(explain(_run([10, 50, 20, 5], _FORK)), 1).document()
    write(document, tmp_path / "graph.svg", "svg")
    root = ElementTree.parse(tmp_path / "graph.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"

    texts = [text.text for text in root.iter(f"{space}text")]
    assert {"aten::op0", "aten::op1", "aten::op2", "aten::op3", "64 B"} <= set(texts)
    assert len([path for path in root.iter(f"{space}path") if "hot" in path.get("class", "")]) == 2
    assert len([group for group in root.iter(f"{space}g") if group.get("class") == "hot"]) == 3


def test_names_from_a_trace_are_text_in_the_svg() -> None:
    from unstall.document.formats import render

    trace = TraceBuilder()
    for _ in range(2):
        with trace.step(), trace.op("</text><script>alert(1)</script>"):
            trace.launch(device_us=5)
    svg = render(Drawn.of(explain(trace.timeline()), 1).document(), "svg")

    assert "<script" not in svg
    assert ElementTree.fromstring(svg) is not None
