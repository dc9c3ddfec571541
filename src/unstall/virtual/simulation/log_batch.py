"""A part of the log that is being simulated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unstall.virtual.simulation.actions import Actions


@dataclass(slots=True)
class Insertions:
    """Driver calls to insert into a batch of log records. Each call is inserted right before the log record in its
    `row`.
    """

    row: list[int] = field(default_factory=list)
    recipe: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    event: list[int] = field(default_factory=list)  # 0 for none

    def add(self, row: int, recipe: int, device: int, stream: int = 0, event: int = 0) -> None:
        self.row.append(row)
        self.recipe.append(recipe)
        self.device.append(device)
        self.stream.append(stream)
        self.event.append(event)


class LogBatch:
    """A batch of log records. The first `simulated` records of the batch are already simulated."""

    def __init__(self, records: np.ndarray, number: int) -> None:
        """`number` is the position that the first of `records` has in the whole log."""
        self.records = records
        self.number = number
        self.captured = np.zeros(len(records), np.bool_)  # part of a graph capture, so nothing runs
        self.instead: dict[int, int] = {}  # by row: the recipe that replaces the usual one
        self.events: dict[int, int] = {}  # by row: the event that a copy records at its end
        self.simulated = 0  # number of simulated rows
        self.insertions = Insertions()

    def recipes(self, actions: Actions, first: int, until: int) -> np.ndarray:
        """Returns the number of the recipe of each record in rows `first` … `until` - 1, as an int64 array."""
        result = actions.of(self.records[first:until])
        for row, recipe in self.instead.items():
            if first <= row < until:
                result[row - first] = recipe
        return result

    def take_insertions(self, until: int) -> Insertions:
        """Removes the insertions before row `until` and returns them."""
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
