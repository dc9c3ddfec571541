"""What `bench` and `compare` return: measurements and comparisons that can show themselves in a
terminal or a notebook, and can be saved.
"""

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
        """Returns the report of the measurement: its times, rates, verdicts and notes. The argument
        `scrub_paths` has no effect.
        """
        return document_of(self)


class ShownComparison(Shown, Comparison):
    """The result of `compare` for one input. `print` shows it as a table for a terminal of 80 columns."""

    __slots__ = ()

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the report of the comparison. The argument `scrub_paths` has no effect."""
        return document_of_rows([self])


@dataclass(frozen=True, slots=True, repr=False)
class Comparisons(Shown):
    """The result of `compare` for several inputs: one comparison for each input."""

    rows: tuple[ShownComparison, ...]
    label: str = ""

    def __iter__(self) -> Iterator[ShownComparison]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, label: str) -> ShownComparison:
        """Returns the comparison for the input with this label.

        Raises:
            KeyError: There is no input with this label.
        """
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(label)

    @property
    def agrees(self) -> bool:
        """Whether the results of all functions agree with the first function's results, for all
        inputs. Results that were not checked count as agreeing.
        """
        return all(row.agrees for row in self.rows)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the report: a table with one line per input and one column per function. The
        argument `scrub_paths` has no effect.
        """
        return document_of_rows(self.rows, self.label)
