"""Finds the text of a device-side assertion in a program's stderr, where the driver prints it."""

from __future__ import annotations

from unstall.blaming.causes import ASSERTION

_LONGEST = 8192


class Assertions:
    """Reads stderr piece by piece, and keeps the first assertion. Every thread of a block prints one."""

    def __init__(self) -> None:
        self.first = ""
        self.count = 0
        self._rest = b""

    def see(self, chunk: bytes) -> None:
        """Takes the next piece."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-_LONGEST:]
        for line in lines:
            if b"Assertion `" in line:
                self._add(line[-_LONGEST:].decode(errors="replace").strip())

    def _add(self, line: str) -> None:
        if ASSERTION.match(line):
            self.first = self.first or line
            self.count += 1
