"""A part of the log while it is simulated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Insertions:
    """Calls inserted right before records; one row each, in order."""

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
    """Records, and how far they have been simulated."""

    def __init__(self, records: np.ndarray, number: int) -> None:
        """`number` is the number of the first record in the whole log."""
        self.records = records
        self.number = number
        self.captured = np.zeros(len(records), np.bool_)  # part of a graph: nothing runs
        self.simulated = 0  # rows
        self.insertions = Insertions()

    def take_insertions(self, until: int) -> Insertions:
        """Remove and return the insertions before that row."""
        taken, self.insertions = self.insertions, Insertions()
        early = sum(row < until for row in taken.row)
        if early == len(taken.row):
            return taken
        for name in Insertions.__slots__:
            column = getattr(taken, name)
            setattr(self.insertions, name, column[early:])
            setattr(taken, name, column[:early])
        return taken
