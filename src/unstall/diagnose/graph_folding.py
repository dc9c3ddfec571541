"""Merges operators of a graph into nodes, so that the graph is small enough to be drawn and read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

MOST_NODES = 200
_SIBLINGS = 4  # equal operators that could run at once become one node from this number on


class Path(NamedTuple):
    """Where an operator was called.

    Attributes:
        frames: The frames of the call stack, outermost first, as indices of rows of
            `timeline.stacks`. If no stack was recorded, one negative number instead, which stands
            for the name of an annotation or operator.
        backward: Whether the operator belongs to a backward pass. If so, the frames are those of
            the forward operator.
    """

    frames: tuple[int, ...]
    backward: bool


class Folded(NamedTuple):
    """Which operators of a graph were merged into which node.

    Attributes:
        node: For each operator, the number of its node. A node has a greater number than the nodes
            on which it depends.
        depth: For each node, how many frames of its operators' call stacks are kept, counted from
            the outermost. The last kept frame is the source line that reports show for the node.
        how: A text that says how operators were merged; "" if each operator is a node of its own.
    """

    node: list[int]
    depth: list[int]
    how: str


def folded(names: Sequence[str], paths: Sequence[Path], edges: Iterable[tuple[int, int]]) -> Folded:
    """Merges operators into at most `MOST_NODES` nodes. The resulting graph has no cycles.

    First, operators with the same name and call stack that could run at once become one node. If
    there are still too many nodes, consecutive operators of one line become one node. If that is
    not enough either, consecutive operators that were called from one line become one node, and so
    on outward along the call stack.

    Args:
        names: The name of each operator, in the order of the program.
        paths: Where each operator was called.
        edges: Pairs (earlier, later) of operators, as indices in `names`: the later operator
            depends on the earlier one.
    """
    pairs = sorted(set(edges))
    depth = [len(path.frames) for path in paths]
    siblings = _siblings(list(zip(names, paths, strict=True)), pairs)
    if max(siblings, default=0) < MOST_NODES:
        return Folded(siblings, _of_nodes(siblings, depth), _how(len(names), siblings, ""))
    stretch, depth, how = _stretches(paths)
    inner = [(stretch[one], stretch[two]) for one, two in pairs if stretch[one] != stretch[two]]
    first = [stretch.index(number) for number in range(stretch[-1] + 1)]
    labels = [
        (names[at], paths[at].frames[: depth[number]], paths[at].backward, stretch.count(number) == 1)
        for number, at in enumerate(first)
    ]
    siblings = _siblings(labels, sorted(set(inner)))
    return Folded([siblings[number] for number in stretch], _of_nodes(siblings, depth), how)


def _how(operators: int, nodes: Sequence[int], otherwise: str) -> str:
    fewer = operators > max(nodes, default=-1) + 1
    return "equal operators that could run at once are one node" if fewer else otherwise


def _of_nodes(node: Sequence[int], depth: Sequence[int]) -> list[int]:
    found = dict(zip(node, depth, strict=True))
    return [found[number] for number in range(len(found))]


def _siblings(labels: Sequence[object], edges: Sequence[tuple[int, int]]) -> list[int]:
    """Returns a node number for each operator. Operators with equal labels that could run at once get the same number,
    if there are at least `_SIBLINGS` of them.

    Operators could run at once if they have the same level. The level of an operator is the number of edges on the
    longest path to it. Each edge leads to a higher level, so the nodes form no cycle.
    """
    level = [0] * len(labels)
    for one, two in edges:
        level[two] = max(level[two], level[one] + 1)
    groups: dict[object, list[int]] = {}
    for number, label in enumerate(labels):
        groups.setdefault((level[number], label), []).append(number)
    parts = [part for mine in groups.values() for part in ([mine] if len(mine) >= _SIBLINGS else [[at] for at in mine])]
    parts.sort(key=lambda part: (level[part[0]], part[0]))
    numbers = [0] * len(labels)
    for number, part in enumerate(parts):
        for at in part:
            numbers[at] = number
    return numbers


def _stretches(paths: Sequence[Path]) -> tuple[list[int], list[int], str]:
    """Merges consecutive operators that have the same outer frames into stretches. Merges the longest stretches first.

    Returns:
        (stretches, depths, how). `stretches` has the number of each operator's stretch. `depths` has the number of
        frames that each stretch keeps. `how` is a text that says how operators were merged.
    """
    count = len(paths)
    deepest = max(len(path.frames) for path in paths)
    for depth in range(deepest, 0, -1):
        run_of = np.array(runs([(path.frames[:depth], path.backward) for path in paths]), np.int64)
        if run_of[-1] >= MOST_NODES:
            continue
        sizes = np.bincount(run_of)
        longest = np.argsort(-sizes, kind="stable")
        left = count - np.cumsum(sizes[longest] - 1)
        is_one = np.zeros(len(sizes), np.bool_)
        is_one[longest[: int(np.argmax(left <= MOST_NODES)) + 1]] = True
        begins = np.append(True, run_of[1:] != run_of[:-1]) | ~is_one[run_of]
        kept = [depth if is_one[run_of[at]] else len(paths[at].frames) for at in np.flatnonzero(begins).tolist()]
        how = "folded by line" if depth == deepest else "folded by the lines that call them"
        return (np.cumsum(begins) - 1).tolist(), kept, how
    each = -(-count // MOST_NODES)
    number = np.arange(count) // each
    return number.tolist(), [1] * (int(number[-1]) + 1), f"{each} operators a node, in the order of their launches"


def runs(labels: Sequence[object]) -> list[int]:
    """Returns a number for each of `labels`. The number of the first label is 0. If a label equals
    the one before, it has the same number; otherwise its number is larger by 1.
    """
    numbers, number = [], 0
    for at, label in enumerate(labels):
        number += at > 0 and label != labels[at - 1]
        numbers.append(number)
    return numbers
