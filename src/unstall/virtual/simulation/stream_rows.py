"""Numbers the streams of all devices. The default streams have the first numbers. The other streams are numbered in the
order in which they first appear.
"""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I32, I64
from unstall.virtual.simulation.captures import Place

_BRANCHES = 1 << 40
"""The first stream number for the branches of graphs."""
_DEVICES = 128


class StreamRows:
    """Numbers the streams of all devices. The number of a stream is its row."""

    def __init__(self, devices: int) -> None:
        self.places: list[Place] = [(device, 0) for device in range(devices)]
        self.fed = 0
        """The number of rows that were passed to the replay engine so far."""
        self._row_of = {place: row for row, place in enumerate(self.places)}
        self._branches: dict[tuple[int, int], int] = {}

    def find(self, place: Place) -> int | None:
        return self._row_of.get(place)

    def row(self, place: Place) -> int:
        """Returns the row of a stream, given (device, stream). Adds the stream if it is new."""
        row = self._row_of.setdefault(place, len(self.places))
        if row == len(self.places):
            self.places.append(place)
        return row

    def rows(self, device: I64, stream: I64) -> I32:
        """Returns the rows of many streams. Adds the streams that are new."""
        if not len(device):
            return np.zeros(0, np.int32)
        if device.min() == device.max() and stream.min() == stream.max():
            return np.full(len(device), self.row((int(device[0]), int(stream[0]))), np.int32)
        keys, which = np.unique(stream * _DEVICES + device, return_inverse=True)
        found = np.array([self.row((key % _DEVICES, key // _DEVICES)) for key in keys.tolist()], np.int32)
        result: I32 = found[which]
        return result

    def branches(self, stream: I32, branch: I32) -> I32:
        """Returns, for each device op, the row of the stream on which the op runs.

        Args:
            stream: For each op, the row of the stream that launches the op.
            branch: For each op, the graph's branch that the op belongs to. Branch 0 runs on the launching stream.
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
        self.fed = len(self.places)
        return np.array([device for device, _ in self.places], np.int32)
