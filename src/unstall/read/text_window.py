"""The part of a text that is held in memory."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.read.unpack import DamagedError


class TextWindow:
    """A part of the text, in bytes, that grows at its end block by block and shrinks at its front."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.text = bytearray()
        self.end = 0  # of the window in the whole text, in bytes
        self.ended = False  # whether no more comes
        self.damage = ""  # why, if the file could not be unpacked to its end
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self.text)

    @property
    def start(self) -> int:
        return self.end - len(self.text)

    def more(self) -> bool:
        """One block more, if there is one."""
        try:
            block = next(self._blocks, b"")
        except DamagedError as error:
            self.damage, block = str(error), b""
        self.ended = not block
        self.end += len(block)
        self.text = bytearray().join((self.text, block))
        return not self.ended

    def double(self) -> None:
        """As much again, so that looking through it anew each time takes no longer than twice through it all."""
        wanted = 2 * len(self)
        while len(self) < wanted and self.more():
            pass

    def skip(self, count: int) -> None:
        self.text = self.text[count:]

    def reopen_list(self, start: int) -> None:
        """Skip to the byte before `start`, and make it the "[" of a list that has its first item there."""
        self.skip(start - 1)
        self.text[:1] = b"["
