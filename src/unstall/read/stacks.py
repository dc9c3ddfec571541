"""Builds a tree of call stacks from the Python frames of a trace, and from the "Call stack" texts
of operators. Stacks that begin with the same callers share these in the tree.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from unstall.read.names import frame
from unstall.timeline.ancestry import depths, nearest
from unstall.timeline.columns import I32, I64, Bool, Lines, Stacks
from unstall.timeline.grouping import by_text, distinct


class Interner(msgspec.Struct):
    """A growing list of distinct texts. `interner(text)` returns the index of `text` in the list,
    and first adds a text that is not in the list.
    """

    texts: list[str]
    index: dict[str, int]

    @classmethod
    def of(cls, texts: list[str]) -> Interner:
        return cls(texts, {text: i for i, text in enumerate(texts)})

    def __call__(self, text: str) -> int:
        found = self.index.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found


class StackTree:
    """Builds the tables `Lines` and `Stacks` of a timeline. A row of `Stacks` is a frame, together
    with the row of its caller. Equal frames that were called from the same stack share one row.

    If `exact` is set, the line of a frame is the line that ran. If not, it is the line where the
    frame's function is defined.
    """

    def __init__(self, intern: Interner, *, exact: bool = False) -> None:
        self._intern = intern
        self._exact = exact
        self._line_of: dict[tuple[str, int, str], int] = {}
        self._node_of: dict[tuple[int, int], int] = {}

    def line(self, name: str) -> int:
        """Returns the row of `Lines` for a frame, given its name in the trace, such as
        "train.py(12): step". Adds a row if there is none.
        """
        return self._line_of.setdefault(frame(name), len(self._line_of))

    def node(self, parent: int, line: int) -> int:
        """Returns the row of `Stacks` for a frame. Adds a row if there is none.

        Args:
            parent: The row of `Stacks` for the frame's caller, or -1 if it has none.
            line: The frame's row of `Lines`.
        """
        return self._node_of.setdefault((parent, line), len(self._node_of))

    def of_frames(self, rows: I32, names: I32, parent: I32) -> I32:
        """Returns, for each host event, the row of `Stacks` for the innermost Python frame around
        the event, or -1 if no frame is around the event.

        Args:
            rows: The host events that are Python frames, as rows of `timeline.host`.
            names: The name of each host event, as an index into the timeline's strings.
            parent: The host event that encloses each host event, or -1.
        """
        node = np.full(len(names), -1, dtype=np.int32)
        if not len(rows):
            return node
        is_frame = np.zeros(len(names), dtype=np.bool_)
        is_frame[rows] = True
        line = np.zeros(len(names), dtype=np.int64)
        line[rows] = by_text(names[rows], lambda index: self.line(self._intern.texts[index]))
        caller = nearest(parent, is_frame)
        outer = np.where(parent >= 0, caller[parent], -1)[rows]
        within = np.full(len(names), -1, dtype=np.int32)
        within[rows] = outer
        depth = depths(within)[rows]
        by_depth = rows[np.argsort(depth, kind="stable")]
        for level in np.split(by_depth, np.cumsum(np.bincount(depth))[:-1]):
            above = within[level]
            node[level] = self._children(np.where(above >= 0, node[above], -1), line[level])
        return np.where(caller >= 0, node[caller], -1).astype(np.int32)

    def _children(self, parents: I32, lines: I64) -> I32:
        width = len(self._line_of) + 1
        keys = (parents.astype(np.int64) + 1) * width + lines
        found, inverse = distinct(keys)
        nodes = [self.node(key // width - 1, key % width) for key in found.tolist()]
        return np.array(nodes, dtype=np.int32)[inverse]

    def of_texts(self, texts: I32, wanted: Bool) -> I32:
        """Returns, for each row, the row of `Stacks` for the innermost frame in the row's "Call
        stack" text. Such a text lists frames, the innermost frame first.

        The result is -1 for rows that are not `wanted` and for rows without a text.

        Args:
            texts: The index of each row's text in the timeline's strings, or -1.
            wanted: Whether a row's text is to be read.
        """
        node = np.full(len(texts), -1, dtype=np.int32)
        rows = np.flatnonzero(wanted & (texts >= 0))
        if not len(rows):
            return node
        node[rows] = by_text(texts[rows], lambda index: self._of_text(self._intern.texts[index]))
        return node

    def _of_text(self, text: str) -> int:
        node = -1
        for name in reversed(text.split(";")):
            if name.strip():
                node = self.node(node, self.line(name.strip()))
        return node

    def tables(self, digests: Mapping[str, Mapping[int, int]]) -> tuple[Lines, Stacks]:
        """Returns the finished tables `(lines, stacks)`. `digests` has the digest of each source
        line, by file and line number.
        """
        places, none = list(self._line_of), dict[int, int]()
        lines = Lines(
            file=np.array([self._intern(file) for file, _, _ in places], dtype=np.int32),
            line=np.array([line for _, line, _ in places], dtype=np.int32),
            function=np.array([self._intern(function) for _, _, function in places], dtype=np.int32),
            exact=np.array([self._exact and line >= 0 for _, line, _ in places], dtype=np.bool_),
            digest=np.array([digests.get(file, none).get(line, -1) for file, line, _ in places], dtype=np.int64),
        )
        nodes = list(self._node_of)
        stacks = Stacks(
            parent=np.array([parent for parent, _ in nodes], dtype=np.int32),
            line=np.array([line for _, line in nodes], dtype=np.int32),
        )
        return lines, stacks
