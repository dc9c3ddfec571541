"""What `bench` and `compare` return: measurements and comparisons that show, save and print themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unstall.document.document import Document
from unstall.document.shown import Shown
from unstall.measuring.comparison import Comparison
from unstall.measuring.document import document_of, document_of_rows
from unstall.measuring.measurement import Measurement


class ShownMeasurement(Shown, Measurement):
    """A result of `bench`. `str()` is a table for a terminal of 80 columns."""

    __slots__ = ()

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the times, rates, verdicts and notes."""
        return document_of(self)


class ShownComparison(Shown, Comparison):
    """A result of `compare`. `str()` is a table for a terminal of 80 columns."""

    __slots__ = ()

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the full comparison."""
        return document_of_rows([self])


@dataclass(frozen=True, slots=True, repr=False)
class Comparisons(Shown):
    """A comparison for each of several inputs."""

    rows: tuple[ShownComparison, ...]
    label: str = ""

    def __iter__(self) -> Iterator[ShownComparison]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, label: str) -> ShownComparison:
        """Returns the comparison at this input. Raises KeyError if there is none."""
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(label)

    @property
    def agrees(self) -> bool:
        """Whether all results that were checked agree with the first function's results, at all inputs."""
        return all(row.agrees for row in self.rows)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns a table: a row per input, a column per function."""
        return document_of_rows(self.rows, self.label)
