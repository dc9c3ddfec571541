"""Finds where the items of a JSON list begin and end. Looks only at quotes and brackets, so that
the other text of the list may be malformed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_QUOTE, _OPEN, _CLOSE = 1, 2, 3
_MEANING = np.zeros(256, dtype=np.uint8)
_MEANING[ord('"')] = _QUOTE
_MEANING[[ord("{"), ord("[")]] = _OPEN
_MEANING[[ord("}"), ord("]")]] = _CLOSE
_BACKSLASH, _LIST_END = ord("\\"), ord("]")
_STRETCH_BYTES = 1 << 20  # bounds the memory of the columns, whatever the text


class Items:
    """Finds the objects and lists that are direct items of a JSON list. `feed` gets the text after
    the "[" of this list, in parts.

    A "}" without a "{" is ignored.

    Attributes:
        starts: The byte offset at which each item starts.
        ends: The byte offset after each item. While the text of the last item has not ended yet,
            `ends` is shorter than `starts`.
        close: The byte offset of the "]" that ends the list, or -1. Text after it is ignored.
    """

    def __init__(self, text: bytes | bytearray = b"", start: int = 0) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.close = -1  # where the list's own "]" is; nothing after it counts
        self._length = start
        self._depth = 0
        self._in_text = False
        self._escaped = False  # whether a backslash escapes the next byte
        self.feed(text, start)

    @property
    def whole(self) -> list[tuple[int, int]]:
        return list(zip(self.starts, self.ends, strict=False))

    @property
    def between(self) -> bool:
        """Whether the byte that `feed` will get next is directly in the list: neither inside an
        item nor after the end of the list.
        """
        return self._depth == 0 and not self._in_text and self.close < 0

    def feed(self, text: bytes | bytearray, start: int = 0) -> None:
        """Reads the next part of the list's text: `text`, from index `start` on."""
        for at in range(start, len(text), _STRETCH_BYTES):
            if self.close < 0:
                self._stretch(text[at : at + _STRETCH_BYTES])

    def _stretch(self, text: bytes | bytearray) -> None:
        offset = self._length
        self._length += len(text)
        chars = np.frombuffer(text, dtype=np.uint8)
        meaning = _MEANING[chars]
        if self._escaped or b"\\" in text:
            self._leave_out_escaped(chars, meaning)
        at = np.flatnonzero(meaning)
        if not len(at):
            return
        meaning = meaning[at]
        is_quote = meaning == _QUOTE
        in_text = (np.cumsum(is_quote, dtype=np.int32) + self._in_text) & 1
        self._in_text = bool(in_text[-1])
        counts = (in_text == 0) & ~is_quote
        at, opens = at[counts], meaning[counts] == _OPEN
        if not len(at):
            return
        raw = self._depth + np.cumsum(np.where(opens, 1, -1).astype(np.int32), dtype=np.int32)
        lowest = np.minimum(np.minimum.accumulate(raw), 0)
        depth = raw - lowest
        closes_nothing = np.diff(lowest, prepend=np.int32(0)) < 0
        list_ends = np.flatnonzero(closes_nothing & (chars[at] == _LIST_END))
        if len(list_ends):
            self.close = offset + int(at[list_ends[0]])
            depth[list_ends[0] :] = -1
        self.starts += (at[(depth == 1) & opens] + offset).tolist()
        self.ends += (at[(depth == 0) & ~opens & ~closes_nothing] + (offset + 1)).tolist()
        self._depth = int(depth[-1])

    def _leave_out_escaped(self, chars: NDArray[np.uint8], meaning: NDArray[np.uint8]) -> None:
        """Sets `meaning` to 0 for each escaped byte of `chars`: a byte after an odd number of backslashes."""
        slashes = np.flatnonzero(chars == _BACKSLASH)
        if self._escaped:
            slashes = np.append(-1, slashes)
        first = np.flatnonzero(np.diff(slashes, prepend=-3) != 1)
        last = np.append(first[1:], len(slashes)) - 1
        odd = (slashes[last] - slashes[first]) % 2 == 0
        escaped = slashes[last][odd] + 1
        self._escaped = len(escaped) > 0 and int(escaped[-1]) == len(chars)
        meaning[escaped[escaped < len(chars)]] = 0
