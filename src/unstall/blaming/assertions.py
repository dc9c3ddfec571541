"""Finds messages of the CUDA driver in a program's stderr, such as the text of a device-side assertion."""

from __future__ import annotations

import re

from unstall.blaming.causes import ASSERTION

_LONGEST = 8192


class FirstLine:
    """Searches stderr for the first match of `pattern`, and stores the match in `first`. Only lines that contain `mark`
    are searched.
    """

    def __init__(self, mark: bytes, pattern: re.Pattern[str]) -> None:
        self.first = ""
        self._mark = mark
        self._pattern = pattern
        self._rest = b""

    def see(self, chunk: bytes) -> None:
        """Searches the next chunk of stderr."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-_LONGEST:]
        for line in lines:
            if not self.first and self._mark in line:
                found = self._pattern.search(line[-_LONGEST:].decode(errors="replace").strip())
                self.first = found[0] if found else ""


class Assertions(FirstLine):
    """Stores the first device-side assertion that stderr contains. Every thread of a block prints its own assertion."""

    def __init__(self) -> None:
        super().__init__(b"Assertion `", ASSERTION)
