"""The two pinned buffers of 1 MiB ("pieces") through which the driver copies pageable memory to a
device.

The host copies the data into a piece, and the device copies from the piece. A copy of up to 64 KiB
needs no piece, because its bytes travel in the launch queue. This was measured on an H100 (driver
580) with a busy device: two copies of 65 KiB to 1 MiB, or one of 2 MiB, return once the host has
copied the data. The next copy returns only after the device has copied from a piece.
"""

from __future__ import annotations

from collections import deque

PIECES = 2
PIECE_BYTES = 1 << 20


class Staging:
    """Which of the driver's pinned buffers ("pieces") of a device are in use. A piece that the
    device may still have to copy from is represented by the CUDA event that follows that copy.
    """

    def __init__(self) -> None:
        self._busy: deque[int] = deque()

    def take(self, pieces: int, event: int) -> list[int]:
        """Takes pieces for a copy.

        Args:
            pieces: How many pieces the copy needs, at most `PIECES`.
            event: The CUDA event that follows the copy.

        Returns:
            The events that the host has to wait for before these pieces are free.
        """
        freed = [self._busy.popleft() for _ in range(len(self._busy) + pieces - PIECES)]
        self._busy.extend([event] * pieces)
        return list(dict.fromkeys(freed))

    def take_all(self) -> list[int]:
        """Takes all pieces for a copy that needs more than there are. The host waits until such a
        copy is done, so all pieces are free after it.

        Returns:
            The events that the host has to wait for before the copy begins.
        """
        freed, self._busy = self._busy, deque()
        return list(dict.fromkeys(freed))


def pieces_of(size_bytes: int) -> int:
    """Returns how many pinned buffers of 1 MiB a copy of `size_bytes` needs."""
    return -(-size_bytes // PIECE_BYTES)
