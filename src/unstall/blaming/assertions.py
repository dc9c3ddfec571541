"""Finds messages of the CUDA driver in a program's stderr, such as the text of a device-side assertion."""

from __future__ import annotations

import re

from unstall.blaming.causes import ASSERTION

_LONGEST = 8192


class FirstLine:
    """Searches a program's stderr for the first match of a pattern. The attribute `first` is the
    text of the match, or "" until there is one.

    The constructor's `pattern` is searched only in lines that contain the bytes `mark`.
    """

    def __init__(self, mark: bytes, pattern: re.Pattern[str]) -> None:
        self.first = ""
        self._mark = mark
        self._pattern = pattern
        self._rest = b""

    def see(self, chunk: bytes) -> None:
        """Searches one more piece of stderr. `chunk` continues the piece of the previous call."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-_LONGEST:]
        for line in lines:
            if not self.first and self._mark in line:
                found = self._pattern.search(line[-_LONGEST:].decode(errors="replace").strip())
                self.first = found[0] if found else ""


class Assertions(FirstLine):
    """Finds the first device-side assertion in a program's stderr. The attribute `first` is its
    text, or "" until there is one.

    Every thread of a failed block prints an assertion of its own, so stderr may contain many.
    """

    def __init__(self) -> None:
        super().__init__(b"Assertion `", ASSERTION)
