"""Where the items of a JSON list begin and end, told by quotes and brackets alone: the rest may be broken."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

_QUOTE, _OPEN, _CLOSE = 1, 2, 3
_MEANING = np.zeros(256, dtype=np.uint8)
_MEANING[ord('"')] = _QUOTE
_MEANING[[ord("{"), ord("[")]] = _OPEN
_MEANING[[ord("}"), ord("]")]] = _CLOSE
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_BACKSLASHES = re.compile(rb"\\*")
_STRETCH_BYTES = 1 << 20  # bounds the memory of the columns, whatever the text


@dataclass(slots=True)
class Items:
    """Offsets of the objects and lists directly in the list: [start, end). The last may have begun and not ended."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    close: int = -1  # of the list's own "]"
    in_text: bool = False  # whether it ends inside a string

    @property
    def whole(self) -> list[tuple[int, int]]:
        return list(zip(self.starts, self.ends, strict=False))


def items(text: bytes, start: int = 0) -> Items:
    """The items of the list that `text[start:]` is the inside of. A stray "}" between items is passed over."""
    found = Items()
    depth = 0
    while start < len(text) and found.close < 0:
        end = min(start + _STRETCH_BYTES, len(text))
        if text[end - 1 : end] == b"\\":
            after = _BACKSLASHES.match(text, end)
            end = min((after.end() if after else end) + 1, len(text))  # so that no escape is cut in two
        depth = _stretch(text[start:end], start, depth, found)
        start = end
    return found


def _stretch(text: bytes, offset: int, depth: int, found: Items) -> int:
    """Add what one stretch of text has; the depth after it."""
    if b"\\" in text:
        text = _ESCAPE.sub(b"__", text)
    meaning = _MEANING[np.frombuffer(text, dtype=np.uint8)]
    at = np.flatnonzero(meaning)
    if not len(at):
        return depth
    meaning = meaning[at]
    is_quote = meaning == _QUOTE
    inside = (np.cumsum(is_quote, dtype=np.int32) + found.in_text) & 1
    found.in_text = bool(inside[-1])
    counts = (inside == 0) & ~is_quote
    at, opens = at[counts], meaning[counts] == _OPEN
    if not len(at):
        return depth
    raw = depth + np.cumsum(np.where(opens, 1, -1).astype(np.int32), dtype=np.int32)
    lowest = np.minimum(np.minimum.accumulate(raw), 0)
    levels = raw - lowest
    stray = np.diff(lowest, prepend=np.int32(0)) < 0
    for i in np.flatnonzero(stray):
        if text[at[i]] == ord("]"):
            found.close = offset + int(at[i])
            at, opens, levels, stray = at[:i], opens[:i], levels[:i], stray[:i]
            break
    found.starts += (at[(levels == 1) & opens] + offset).tolist()
    found.ends += (at[(levels == 0) & ~opens & ~stray] + (offset + 1)).tolist()
    return int(levels[-1]) if len(levels) else depth
