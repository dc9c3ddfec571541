"""A batch of records of the shim's log that is being simulated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unstall.timeline.columns import I64
from unstall.virtual.simulation.actions import Actions
from unstall.virtual.simulation.data_numbers import DataNumbers


@dataclass(slots=True)
class Insertions:
    """Calls of the driver that are inserted into a batch of the shim's log. Each list has an
    element for each call.

    Attributes:
        row: The row of the record right before which the call is inserted.
        recipe: The number of the recipe of the call (what is simulated).
        device: The device of the call.
        stream: The stream of the call.
        event: The CUDA event of the call; 0 if it has none.
    """

    row: list[int] = field(default_factory=list)
    recipe: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    event: list[int] = field(default_factory=list)

    def add(self, row: int, recipe: int, device: int, stream: int = 0, event: int = 0) -> None:
        """Inserts a call right before the record in row `row`. The other arguments are elements of
        the lists of the same names.
        """
        self.row.append(row)
        self.recipe.append(recipe)
        self.device.append(device)
        self.stream.append(stream)
        self.event.append(event)


class LogBatch:
    """A batch of records of the shim's log, of which the first ones may have been simulated
    already. Rows count within the batch.

    Attributes:
        records: The records.
        number: The number of the first record, counted from the start of the log.
        uses: The memory that the records use, an array of USE.
        captured: For each record, whether it was captured into a CUDA graph, so that nothing runs.
        instead: By row, the number of the recipe (what is simulated) that replaces the usual one.
        events: By row, the CUDA event that a copy records at its end.
        simulated: How many records were simulated.
        insertions: The calls of the driver that are inserted before records.
    """

    def __init__(self, records: np.ndarray, number: int, uses: np.ndarray) -> None:
        """`number` is the number of the first of `records`, counted from the start of the log."""
        self.records = records
        self.number = number
        self.uses = uses
        self._uses_end: I64 = np.concatenate(([0], np.cumsum(records["uses"])))
        self.captured = np.zeros(len(records), np.bool_)
        self.instead: dict[int, int] = {}
        self.events: dict[int, int] = {}
        self.simulated = 0
        self.insertions = Insertions()

    def recipes(self, actions: Actions, first: int, until: int) -> np.ndarray:
        """Returns the number of the recipe (what is simulated) of each record in rows `first` …
        `until` - 1, as an int64 array.
        """
        result = actions.of(self.records[first:until])
        for row, recipe in self.instead.items():
            if first <= row < until:
                result[row - first] = recipe
        return result

    def data(self, numbers: DataNumbers, first: int, until: int) -> I64:
        """Returns the number of the memory that each record in rows `first` … `until` - 1 uses, by `numbers`."""
        uses = self.uses[self._uses_end[first] : self._uses_end[until]]
        return numbers.of(self.records[first:until], uses)

    def take_insertions(self, until: int) -> Insertions:
        """Removes the insertions before row `until`, and returns them."""
        taken, self.insertions = self.insertions, Insertions()
        is_early = [row < until for row in taken.row]
        if not all(is_early):
            for name in Insertions.__slots__:
                column = getattr(taken, name)
                setattr(
                    self.insertions, name, [each for each, early in zip(column, is_early, strict=True) if not early]
                )
                setattr(taken, name, [each for each, early in zip(column, is_early, strict=True) if early])
        return taken
