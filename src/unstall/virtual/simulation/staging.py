"""How the driver copies pageable memory to a device: through two pinned pieces of 1 MiB.

The host copies the data into a piece, and the device copies the piece. A copy of up to 64 KiB needs no piece, since its
bytes travel in the launch queue. Measured on an H100 (driver 580) with the device busy: two copies of 65 KiB to 1 MiB,
or one of 2 MiB, return once the host has copied the data. The next one returns after the device has begun to catch up.
"""

from __future__ import annotations

from collections import deque

PIECES = 2
PIECE_BYTES = 1 << 20


class Staging:
    """The pieces of one device.

    Each piece that the device may still be copying from is represented by the event after that copy.
    """

    def __init__(self) -> None:
        self._busy: deque[int] = deque()

    def take(self, pieces: int, event: int) -> list[int]:
        """Takes pieces for a copy, which is followed by `event`. Returns the events to wait for, so that these pieces
        are free.
        """
        freed = [self._busy.popleft() for _ in range(len(self._busy) + pieces - PIECES)]
        self._busy.extend([event] * pieces)
        return list(dict.fromkeys(freed))

    def take_all(self) -> list[int]:
        """Takes all pieces for a copy that needs more of them, so that the host waits for it: at its end they are free.
        Returns the events to wait for before it.
        """
        freed, self._busy = self._busy, deque()
        return list(dict.fromkeys(freed))


def pieces_of(size_bytes: int) -> int:
    """Returns how many pieces a copy needs."""
    return -(-size_bytes // PIECE_BYTES)
