"""Numbers the streams of all devices: first the default stream of each device, then the other
streams in the order in which they are first used.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64
from unstall.virtual.simulation.captures import Place

_BRANCHES = 1 << 40
"""The first stream number for the branches of CUDA graphs. No stream of torch has so large a number."""
_DEVICES = 128


class StreamRows:
    """Numbers the streams of all devices. The number of a stream is called its row. The first rows
    are the default streams.

    Attributes:
        places: For each row, the stream as a pair `(device, number of the stream on the device)`.
        fed: How many rows the replay engine knows.
    """

    def __init__(self, devices: int) -> None:
        self.places: list[Place] = [(device, 0) for device in range(devices)]
        self.fed = 0
        self._row_of = {place: row for row, place in enumerate(self.places)}
        self._branches: dict[tuple[int, int], int] = {}

    def find(self, place: Place) -> int | None:
        """Returns the row of a stream, or None if the stream has no row yet."""
        return self._row_of.get(place)

    def row(self, place: Place) -> int:
        """Returns the row of a stream. Gives it a row if it has none yet."""
        row = self._row_of.setdefault(place, len(self.places))
        if row == len(self.places):
            self.places.append(place)
        return row

    def rows(self, device: I64, stream: I64) -> I32:
        """Returns the rows of many streams. Gives those a row that have none yet.

        Args:
            device: For each stream, its device.
            stream: For each stream, its number on the device.
        """
        if not len(device):
            return np.zeros(0, np.int32)
        if device.min() == device.max() and stream.min() == stream.max():
            return np.full(len(device), self.row((int(device[0]), int(stream[0]))), np.int32)
        keys, which = np.unique(stream * _DEVICES + device, return_inverse=True)
        found = np.array([self.row((key % _DEVICES, key // _DEVICES)) for key in keys.tolist()], np.int32)
        result: I32 = found[which]
        return result

    def branches(self, stream: I32, branch: I32) -> I32:
        """Returns, for each device op, the row of the stream on which it runs. A branch of a CUDA
        graph, other than branch 0, gets a row of its own.

        Args:
            stream: For each op, the row of the stream on which it is launched.
            branch: For each op, its branch in its CUDA graph. Branch 0 runs on the launching
                stream; so does an op that is in no graph.
        """
        away = np.flatnonzero(branch)
        if not len(away):
            return stream
        result = stream.copy()
        for at in away.tolist():
            key = int(stream[at]), int(branch[at])
            row = self._branches.get(key)
            if row is None:
                device, number = self.places[key[0]]
                row = self._branches[key] = self.row((device, _BRANCHES + (number << 8) + key[1]))
            result[at] = row
        return result

    def device_of_stream(self) -> I32:
        """Returns the device of each row. Call this to pass the rows to the replay engine: it sets `fed`."""
        self.fed = len(self.places)
        return np.array([device for device, _ in self.places], np.int32)
