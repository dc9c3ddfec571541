"""Converts the capture of a CUDA graph into the recipe of a graph launch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unstall.replay.program import Code as Do
from unstall.virtual.simulation.actions import Actions
from unstall.virtual.simulation.recipes import Op, RecipeStep, RuntimeCall

Place = tuple[int, int]
"""(device, stream)"""


@dataclass(slots=True)
class _Node:
    op: Op
    place: Place
    follows: frozenset[int]
    done: int  # end in ns if it waited only for the nodes in `follows`


class Capture:
    """One graph during its capture. Stores, for each stream, the graph nodes that the next node on this stream depends
    on.
    """

    def __init__(self, graph: int, origin: Place) -> None:
        self.graph = graph
        self.origin = origin
        self._nodes: list[_Node] = []
        self._last: dict[Place, frozenset[int]] = {origin: frozenset()}
        self._events: dict[int, frozenset[int]] = {}

    def holds(self, place: Place) -> bool:
        """Returns whether work on this stream is captured."""
        return place in self._last

    def record(self, event: int, place: Place) -> None:
        self._events[event] = self._last[place]

    def wait(self, event: int, place: Place) -> bool:
        """Makes the stream wait for an event. If the event was recorded in this capture, the stream joins the capture.
        Returns whether the event was recorded in this capture.
        """
        if event not in self._events:
            return False
        self._last[place] = self._last.get(place, frozenset()) | self._events[event]
        return True

    def add(self, ops: list[Op], place: Place) -> None:
        for op in ops:
            follows = self._last[place]
            begun = max((self._nodes[node].done for node in follows), default=0)
            self._last[place] = frozenset({len(self._nodes)})
            self._nodes.append(_Node(op, place, follows, begun + op.duration + op.gap))

    def finish(self, actions: Actions) -> int:
        """Adds a recipe for the launch of the graph. Returns the recipe's number.

        A node waits for the previous node on its stream. A node may also depend on several nodes of other streams. In
        the recipe, it waits for only one of them: the one that ends last. To find it, the end of each node is computed
        as if only dependencies delayed nodes.
        """
        host, limits = actions.costs.host, actions.costs.limits
        several = len({node.place for node in self._nodes}) > 1
        usual_gap = limits.graph_gap + (limits.branch_gap if several else 0)
        branches = {self.origin: 0}
        ops: list[Op] = []
        for number, node in enumerate(self._nodes):
            branch = branches.setdefault(node.place, len(branches))
            others = [at for at in node.follows if self._nodes[at].place != node.place]
            after = max(others, key=lambda at: (self._nodes[at].done, at), default=-1)
            gap = usual_gap if number else node.op.gap
            ops.append(replace(node.op, gap=gap, latency=limits.graph_latency, branch=branch, after=after))
        call = host.graph_launch + host.graph_node * len(ops)
        step = (
            RecipeStep(Do.LAUNCH, RuntimeCall.GRAPH_LAUNCH, call=call, ops=tuple(ops))
            if ops
            else RecipeStep(Do.CALL, call=call)
        )
        return actions.add(("graph", self.graph), [step])
