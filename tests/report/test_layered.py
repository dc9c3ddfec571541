"""The layout of graphs: laws that hold for any graph, and places that can be worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.document.layered import laid_out, nearest_apart, reduced

Edges = set[tuple[int, int]]
_COUNT = 12
_NODES = st.integers(0, _COUNT - 1)
EDGES = st.sets(st.tuples(_NODES, _NODES).filter(lambda edge: edge[0] < edge[1]))


def _reach(edges: Edges) -> Edges:
    found = set(edges)
    for middle in range(_COUNT):
        found |= {(a, d) for a, b in found for c, d in found if b == c == middle}
    return found


@given(EDGES)
def test_the_reduction_reaches_the_same_nodes_with_edges_that_no_other_path_replaces(edges: Edges) -> None:
    kept = set(reduced(_COUNT, edges))

    assert kept <= edges
    assert _reach(kept) == _reach(edges)
    assert all(edge not in _reach(kept - {edge}) for edge in kept)


def test_an_edge_that_must_stay_stays() -> None:
    edges = {(0, 1), (1, 2), (0, 2)}
    assert reduced(3, edges) == [(0, 1), (1, 2)]
    assert reduced(3, edges, [(0, 2)]) == sorted(edges)


@given(EDGES)
def test_each_node_is_below_what_it_needs_and_none_covers_another(edges: Edges) -> None:
    layout = laid_out(_COUNT, edges, 100, 10)

    assert all(layout.layer[one] < layout.layer[two] for one, two in edges)
    for layer in set(layout.layer):
        row = sorted(layout.x[number] for number in range(_COUNT) if layout.layer[number] == layer)
        assert all(two - one >= 110 - 1e-6 for one, two in pairwise(row))
    assert all(50 - 1e-6 <= x <= layout.width - 50 + 1e-6 for x in layout.x)
    assert set(layout.routes) == set(reduced(_COUNT, edges))
    for (one, two), route in layout.routes.items():
        assert len(route) == layout.layer[two] - layout.layer[one] + 1
        assert (route[0], route[-1]) == (layout.x[one], layout.x[two])


def test_a_chain_is_straight_and_its_branch_is_beside_it() -> None:
    layout = laid_out(4, [(0, 1), (1, 2), (0, 3)], 100, 10, straight=[(0, 1), (1, 2)])

    assert layout.layer == (0, 1, 2, 1)
    assert max(layout.x[:3]) - min(layout.x[:3]) < 10
    assert abs(layout.x[3] - layout.x[1]) >= 110


@pytest.mark.parametrize(
    ("wanted", "weight", "found"),
    [
        ([0, 100], [1, 1], [0, 100]),  # far enough apart
        ([0, 0], [1, 1], [-5, 5]),  # both give way
        ([0, 0], [9, 1], [-1, 9]),  # the heavy one less
        ([5, 0, 0], [1, 1, 1], [-8.333, 1.667, 11.667]),
    ],
)
def test_positions_are_the_nearest_that_are_apart(wanted: list[float], weight: list[float], found: list[float]) -> None:
    assert nearest_apart(wanted, [10] * (len(wanted) - 1), weight) == pytest.approx(found, abs=1e-3)
