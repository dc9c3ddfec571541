"""Keeps in memory the part of a file's text that is being read."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.read.unpack import DamagedError


class TextWindow:
    """The part of a file's text that is in memory. Reading a block makes it longer at its end;
    skipping text makes it shorter at its front.

    Attributes:
        text: The bytes in memory.
        end: The byte offset in the file's whole text at which `text` ends.
        ended: Whether the file's whole text was read.
        damage: Why the file could not be unpacked to its end, or "".
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.text = bytearray()
        self.end = 0  # byte offset of the window's end in the whole text
        self.ended = False  # whether the whole text was read
        self.damage = ""  # why, if the file could not be unpacked to its end
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self.text)

    @property
    def start(self) -> int:
        return self.end - len(self.text)

    def more(self) -> bool:
        """Reads one more block of the file's text. Returns False if the text has ended."""
        try:
            block = next(self._blocks, b"")
        except DamagedError as error:
            self.damage, block = str(error), b""
        self.ended = not block
        self.end += len(block)
        self.text = bytearray().join((self.text, block))
        return not self.ended

    def double(self) -> None:
        """Reads blocks until the text in memory is twice as long.

        If a caller scans the text in memory again after each call, all scans together cost at most
        as much as two scans of the whole text.
        """
        wanted = 2 * len(self)
        while len(self) < wanted and self.more():
            pass

    def skip(self, count: int) -> None:
        self.text = self.text[count:]

    def reopen_list(self, start: int) -> None:
        """Removes the text before index `start` of `text`, and puts "[" in front of the remaining
        text, so that this is a JSON list.
        """
        self.skip(start - 1)
        self.text[:1] = b"["
