"""Converts the Python stacks of the log into rows of the tables `Lines` and `Stacks` of a timeline."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from unstall.line_digests import LineDigests
from unstall.lines.clock import line_at
from unstall.lines.places import Shortened
from unstall.timeline.columns import I32, Lines, Stacks
from unstall.virtual.log import OF_ITS_THREAD, Stack
from unstall.virtual.simulation.history import Happened

_AUTOGRAD = f"torch{os.sep}autograd{os.sep}"


def stack_rows(
    stacks: Sequence[Stack], folder: str, digest: LineDigests, text: Callable[[str], int]
) -> tuple[Lines, Stacks, I32, I32]:
    """Converts the Python stacks of the log into the tables `Lines` and `Stacks` of a timeline.

    Args:
        stacks: The stacks, by their numbers in the log.
        folder: The folder in which the program was started.
        digest: Works out the digests of source lines.
        text: A function that returns the index of a text in the timeline's strings.

    Returns:
        `(lines, stacks, whole, calling)`: the two tables, and two rows of the table `stacks` for
        each stack of the log. `whole` has the row of its innermost frame. `calling` has the row of
        its outermost frame of `torch.autograd`, which starts the backward pass, or again that of
        its innermost frame if it has no such frame.
    """
    short = Shortened(folder)
    lines: dict[tuple[str, int, str], int] = {}
    nodes: dict[tuple[int, int], int] = {}
    places: dict[tuple[object, int], int] = {}
    whole, calling = np.full(len(stacks) + 1, -1, np.int32), np.full(len(stacks) + 1, -1, np.int32)
    for number, stack in enumerate(stacks):
        node = -1
        for code, offset in reversed(stack):
            line = places.get((code, offset))
            if line is None:
                place = (short[code.co_filename], line_at(code, offset), code.co_qualname)
                line = places[code, offset] = lines.setdefault(place, len(lines))
            node = nodes.setdefault((node, line), len(nodes))
            if calling[number] < 0 and _AUTOGRAD in code.co_filename:
                calling[number] = node
        whole[number] = node
        if calling[number] < 0:
            calling[number] = node
    return (
        Lines(
            file=np.array([text(file) for file, _, _ in lines], np.int32),
            line=np.array([line for _, line, _ in lines], np.int32),
            function=np.array([text(function) for _, _, function in lines], np.int32),
            exact=np.ones(len(lines), np.bool_),
            digest=np.array([digest(file, line) for file, line, _ in lines], np.int64),
        ),
        Stacks(
            parent=np.array([parent for parent, _ in nodes], np.int32),
            line=np.array([line for _, line in nodes], np.int32),
        ),
        whole,
        calling,
    )


def stack_of_records(happened: Happened, whole: I32, calling: I32) -> I32:
    """Returns, for each record of the log, its row in the table `Stacks`, or -1. A record of a
    thread of autograd has the stack of the last call that started a backward pass.

    Args:
        happened: The records of the log.
        whole: For each stack of the log, the row of its innermost frame.
        calling: For each stack of the log, the row of the frame that starts a backward pass, or
            else of its innermost frame.
    """
    stack = happened.stack
    lost = (stack == -1) & (happened.thread != 0)
    # If autograd nodes are written in Python, autograd's threads have stacks too, but these do not call backward().
    calls = (stack >= 0) & ~np.isin(happened.thread, np.unique(happened.thread[lost]))
    calls &= ~OF_ITS_THREAD[happened.code]
    known = np.where(calls, np.arange(len(stack)), -1)
    last = np.maximum.accumulate(known) if len(known) else known
    caller = stack[np.maximum(last, 0)] if len(stack) else stack
    by_caller = np.where(caller >= 0, calling[np.maximum(caller, 0)], -1)
    own = np.where(stack >= 0, whole[np.maximum(stack, 0)], -1)
    return np.where(lost, by_caller, own).astype(np.int32)
