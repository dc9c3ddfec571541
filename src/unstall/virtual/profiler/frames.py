"""Stacks of host events → Python frames as spans of time, nested like the calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I32, I64, Host, HostKind, Stacks, Timeline


@dataclass(frozen=True, eq=False, slots=True)
class FrameSlices:
    """One row for each span that a frame spends on one line; a caller's rows enclose its callees'."""

    thread: I32  # row of Threads
    start: I64
    end: I64
    line: I32  # row of Lines


def slices_of(timeline: Timeline) -> FrameSlices:
    """Each frame, from the first event in it to the end of the last; within an operator, only its own frames.

    An annotation may begin and end in different places, so only its borders count.
    """
    host = timeline.host
    solid = host.kind != HostKind.ANNOTATION
    around = nearest(host.parent, solid & (host.stack >= 0))
    outer = np.where(host.parent >= 0, around[host.parent], -1).astype(np.int32)
    rows = np.flatnonzero(solid & (host.stack >= 0))
    start, end = host.start[rows], host.end[rows]
    spans, before, after = _borders(host)
    rows, start, end = (
        np.concatenate(of) for of in ((rows, spans, spans), (start, before, after), (end, before, after))
    )
    chains = _chains(timeline.stacks)
    # By what encloses them, so that those within one operator stand together, as do the outermost of a thread.
    order = np.lexsort((start, outer[rows], host.thread[rows]))
    rows, start, end = rows[order], start[order], end[order]
    stack, within, thread = host.stack[rows], outer[rows], host.thread[rows]
    shown = _common(chains, stack, np.where(within >= 0, host.stack[np.maximum(within, 0)], -1))
    same = np.append(False, (within[1:] == within[:-1]) & (thread[1:] == thread[:-1]))[: len(rows)]
    parts: list[tuple[I32, I64, I64, I32]] = []
    for level in range(chains.shape[1]):
        line = np.where(shown <= level, chains[stack, level], -1)
        same &= np.append(False, line[1:] == line[:-1])[: len(rows)]
        stops = np.append(np.flatnonzero(~same), len(rows))
        begins = np.flatnonzero(~same & (line >= 0))
        last = stops[np.searchsorted(stops, begins, side="right")] - 1
        parts.append((thread[begins], start[begins], end[last], line[begins]))
    if not parts:
        return FrameSlices(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32))
    return FrameSlices(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _borders(host: Host) -> tuple[I64, I64, I64]:
    """Annotations, with the ns before and after each, which their frames enclose; without those that adjoin other
    events.
    """
    taken = np.concatenate((host.start, host.end))
    rows = np.flatnonzero((host.kind == HostKind.ANNOTATION) & (host.stack >= 0))
    before, after = host.start[rows] - 1, host.end[rows] + 1
    apart = (before >= 0) & ~np.isin(before, taken) & ~np.isin(after, taken)
    return rows[apart], before[apart], after[apart]


def line_texts(timeline: Timeline) -> list[str]:
    """The name of each row of Lines, as Kineto writes it."""
    lines, strings = timeline.lines, timeline.strings
    return [
        f"{strings[file]}({line}): {strings[function]}" if line >= 0 else strings[function]
        for file, line, function in zip(lines.file.tolist(), lines.line.tolist(), lines.function.tolist(), strict=True)
    ]


class StackTexts(dict[int, list[str]]):
    """The frames of a row of Stacks, as Kineto names them, innermost first."""

    def __init__(self, timeline: Timeline) -> None:
        self._stacks, self._names = timeline.stacks, line_texts(timeline)

    def __missing__(self, row: int) -> list[str]:
        frames, at = [], row
        while at >= 0:
            frames.append(self._names[self._stacks.line[at]])
            at = int(self._stacks.parent[at])
        self[row] = frames
        return frames


def _chains(stacks: Stacks) -> I32:
    """By row of Stacks: the lines of its frames, outermost first, padded with -1."""
    depth = np.zeros(len(stacks), np.int32)
    for row, parent in enumerate(stacks.parent.tolist()):
        depth[row] = depth[parent] + 1 if parent >= 0 else 1
    chains = np.full((len(stacks), int(depth.max(initial=0))), -1, np.int32)
    for row, parent in enumerate(stacks.parent.tolist()):
        if parent >= 0:
            chains[row] = chains[parent]
        chains[row, depth[row] - 1] = stacks.line[row]
    return chains


def _common(chains: I32, stack: I32, outer: I32) -> I64:
    """How many frames each stack shares with the one around it, which shows them already."""
    alike = np.zeros(len(stack), np.int64)
    going = outer >= 0
    for level in range(chains.shape[1]):
        going = going & (chains[stack, level] == chains[outer, level]) & (chains[stack, level] >= 0)
        alike += going
    return alike
