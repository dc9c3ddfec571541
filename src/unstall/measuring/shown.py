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
    """The result of `bench`. `print` shows it as a table for a terminal of 80 columns."""

    __slots__ = ()

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the measurement's report: its times, rates, verdicts and notes. `scrub_paths` has no effect."""
        return document_of(self)


class ShownComparison(Shown, Comparison):
    """The result of `compare` at one input. `print` shows it as a table for a terminal of 80 columns."""

    __slots__ = ()

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the comparison's report. `scrub_paths` has no effect."""
        return document_of_rows([self])


@dataclass(frozen=True, slots=True, repr=False)
class Comparisons(Shown):
    """The result of `compare` at several inputs: one comparison for each input."""

    rows: tuple[ShownComparison, ...]
    label: str = ""

    def __iter__(self) -> Iterator[ShownComparison]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, label: str) -> ShownComparison:
        """Returns the comparison at the input with this label. Raises KeyError if there is no such input."""
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(label)

    @property
    def agrees(self) -> bool:
        """Whether the results of all functions agree with the first function's results, at all inputs. Results that
        were not checked count as agreeing.
        """
        return all(row.agrees for row in self.rows)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns a table with one line per input and one column per function. `scrub_paths` has no effect."""
        return document_of_rows(self.rows, self.label)
