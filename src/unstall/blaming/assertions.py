"""Finds a sentence in a program's stderr, where the driver prints: the text of a device-side assertion is one."""

from __future__ import annotations

import re

from unstall.blaming.causes import ASSERTION

_LONGEST = 8192


class FirstLine:
    """Reads stderr piece by piece, and keeps what a pattern matches first. Only lines with `mark` are searched."""

    def __init__(self, mark: bytes, pattern: re.Pattern[str]) -> None:
        self.first = ""
        self._mark = mark
        self._pattern = pattern
        self._rest = b""

    def see(self, chunk: bytes) -> None:
        """Takes the next piece."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-_LONGEST:]
        for line in lines:
            if not self.first and self._mark in line:
                found = self._pattern.search(line[-_LONGEST:].decode(errors="replace").strip())
                self.first = found[0] if found else ""


class Assertions(FirstLine):
    """Keeps the first assertion. Every thread of a block prints one."""

    def __init__(self) -> None:
        super().__init__(b"Assertion `", ASSERTION)
