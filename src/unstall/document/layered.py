"""Lays out a directed graph without cycles in layers, after Sugiyama, Tagawa and Toda
(https://doi.org/10.1109/TSMC.1981.4308636).

Each node is below all nodes on which it depends. An edge is left out if other edges lead from its
earlier to its later node. The nodes of a layer are ordered so that few edges cross. Then each node
moves as near to its connected nodes as the neighbours in its layer allow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

_SWEEPS = 12
_STRAIGHT = 50.0  # weight of what should be straight; all else has 1
_PATH_WIDTH = 14.0  # px, that an edge takes beside nodes


class Layout(NamedTuple):
    """Where the nodes and edges of a graph are drawn, in px.

    Attributes:
        x: For each node, the horizontal position of its middle.
        layer: For each node, its layer, from 0 at the top.
        routes: Maps each edge (earlier node, later node) to its horizontal positions: one in each
            layer, from the layer of the earlier node to that of the later node. Edges that are left
            out are not in the map.
        width: The width of the whole drawing.
    """

    x: tuple[float, ...]
    layer: tuple[int, ...]
    routes: dict[tuple[int, int], tuple[float, ...]]
    width: float


def laid_out(
    count: int,
    edges: Iterable[tuple[int, int]],
    node_width: float,
    gap: float,
    straight: Collection[tuple[int, int]] = (),
) -> Layout:
    """Returns the layout of a graph.

    Args:
        count: The number of nodes.
        edges: The edges, as pairs (earlier node, later node). The number of the earlier node is
            smaller.
        node_width: The width of each node, in px.
        gap: The least space between neighbours in a layer, in px.
        straight: The edges that should be as straight as possible.
    """
    kept = reduced(count, edges, straight)
    layer = _layers(count, kept)
    chains, neighbours, rank = _with_paths(count, kept, layer)
    width = [node_width if number < count else _PATH_WIDTH for number in range(len(rank))]
    rows = _ordered(rank, neighbours)
    weight = _weights(len(rank), (chains[edge] for edge in straight if edge in chains))
    x = _placed(rows, neighbours, width, gap, weight)
    left = min((x[number] - width[number] / 2 for number in range(len(x))), default=0.0)
    right = max((x[number] + width[number] / 2 for number in range(len(x))), default=0.0)
    shifted = [each - left for each in x]
    routes = {edge: tuple(shifted[number] for number in chain) for edge, chain in chains.items()}
    return Layout(tuple(shifted[:count]), tuple(layer), routes, right - left)


def reduced(
    count: int, edges: Iterable[tuple[int, int]], always: Collection[tuple[int, int]] = ()
) -> list[tuple[int, int]]:
    """Returns the edges of a graph without those that say nothing new: an edge is left out if other
    edges lead from its first node to its second node (transitive reduction).

    Args:
        count: The number of nodes.
        edges: The edges, as pairs (earlier node, later node). The number of the earlier node is
            smaller.
        always: Edges that are never left out.
    """
    always = set(always)
    later: list[list[int]] = [[] for _ in range(count)]
    for one, two in set(edges):
        later[one].append(two)
    reach = [0] * count  # by node: a bit for each node that comes after it
    kept = []
    for one in reversed(range(count)):
        for two in sorted(later[one]):
            if (one, two) in always or not reach[one] >> two & 1:
                kept.append((one, two))
            reach[one] |= 1 << two | reach[two]
    return sorted(kept)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the layer of each node. Layer 0 is at the top.

    A node is one layer below the lowest node that it needs. If it needs no node, it is one layer above the highest node
    that needs it.
    """
    layer = [0] * count
    for one, two in edges:  # sorted, so that what a node needs has its layer
        layer[two] = max(layer[two], layer[one] + 1)
    needing = {two for _, two in edges}
    first: dict[int, int] = {}
    for one, two in edges:
        first[one] = min(first.get(one, count), layer[two])
    return [first[one] - 1 if one in first and one not in needing else layer[one] for one in range(count)]


def _with_paths(
    count: int, edges: Sequence[tuple[int, int]], layer: Sequence[int]
) -> tuple[dict[tuple[int, int], list[int]], tuple[list[list[int]], list[list[int]]], list[int]]:
    """Adds a point to each layer that an edge passes. Nodes are points, too, with the same numbers.

    Returns:
        (chains, (above, below), layers). `chains` maps each edge to its points, from its first node to its second node.
        `above` and `below` have, for each point, the points to which it is connected in the layer above and below.
        `layers` has the layer of each point.
    """
    rank = list(layer)
    chains = {}
    for one, two in edges:
        between = range(layer[one] + 1, layer[two])
        chains[one, two] = [one, *range(len(rank), len(rank) + len(between)), two]
        rank += between
    above: list[list[int]] = [[] for _ in rank]
    below: list[list[int]] = [[] for _ in rank]
    for chain in chains.values():
        for upper, lower in pairwise(chain):
            above[lower].append(upper)
            below[upper].append(lower)
    return chains, (above, below), rank


def _ordered(rank: Sequence[int], neighbours: tuple[list[list[int]], list[list[int]]]) -> list[list[int]]:
    """Returns the points of each layer from left to right, sorted by the mean position of their connected points."""
    rows: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    for number, layer in enumerate(rank):
        rows[layer].append(number)
    place = [0.0] * len(rank)
    for row in rows:
        for at, number in enumerate(row):
            place[number] = at
    for sweep in range(_SWEEPS):
        near = neighbours[sweep % 2]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = {number: _mean([place[each] for each in near[number]], place[number]) for number in row}
            row.sort(key=lambda number: wanted[number])
            for at, number in enumerate(row):
                place[number] = at
    return rows


def _weights(count: int, straight: Iterable[Sequence[int]]) -> list[float]:
    """Returns the weight of each point: how strongly it attracts the points to which it is connected.

    A point with a large weight also moves less if it must make room for its neighbours. `straight` has the points of
    each edge that should be straight. These points have a large weight.
    """
    weight = [1.0] * count
    for chain in straight:
        for number in chain:
            weight[number] = _STRAIGHT
    return weight


def _placed(
    rows: Sequence[Sequence[int]],
    neighbours: tuple[list[list[int]], list[list[int]]],
    width: Sequence[float],
    gap: float,
    weight: Sequence[float],
) -> list[float]:
    x = [0.0] * len(width)
    for row in rows:
        at = 0.0
        for number in row:
            x[number] = at + width[number] / 2
            at += width[number] + gap
        for number in row:
            x[number] -= at / 2
    for sweep in range(_SWEEPS):
        near = neighbours[sweep % 2]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_pulled([(x[each], weight[each]) for each in near[number]], x[number]) for number in row]
            apart = [(width[one] + width[two]) / 2 + gap for one, two in pairwise(row)]
            for number, at in zip(row, nearest_apart(wanted, apart, [weight[each] for each in row]), strict=True):
                x[number] = at
    return x


def nearest_apart(wanted: Sequence[float], apart: Sequence[float], weight: Sequence[float]) -> list[float]:
    """Returns positions that are as near as possible to wanted positions, and keep a least distance
    between neighbours.

    The positions minimise the weighted sum of the squared differences from `wanted`. If the sum of
    all least distances to the left of a position is subtracted from it, the positions only need to
    ascend. This problem is isotonic regression, which the pool-adjacent-violators algorithm solves.

    Args:
        wanted: The wanted positions in px, from left to right.
        apart: The least distance in px from each position to the next one.
        weight: The weight of each position.
    """
    offsets = [0.0]
    for distance in apart:
        offsets.append(offsets[-1] + distance)
    pools: list[tuple[float, float, int]] = []  # (weighted sum, weight, count)
    for want, offset, own in zip(wanted, offsets, weight, strict=False):
        total, heavy, count = (want - offset) * own, own, 1
        while pools and pools[-1][0] / pools[-1][1] > total / heavy:
            before = pools.pop()
            total, heavy, count = total + before[0], heavy + before[1], count + before[2]
        pools.append((total, heavy, count))
    level = [total / heavy for total, heavy, count in pools for _ in range(count)]
    return [each + offset for each, offset in zip(level, offsets, strict=False)]


def _pulled(values: Sequence[tuple[float, float]], otherwise: float) -> float:
    """Returns the weighted mean of (value, weight) pairs, or `otherwise` if there are no pairs."""
    heavy = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / heavy if heavy else otherwise


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
