"""Compares figures with those of an experiment's author, where both are of the same kind of GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unstall.course.figures import figure
from unstall.course.row import Row


@dataclass(frozen=True, slots=True)
class Against:
    """One figure beside the author's.

    Attributes:
        label: What the figure is of.
        author: The author's figure, as text.
        ours: Our figure, as text.
        ratio: Our figure divided by the author's.
        within: The factor within which it should be.
        used: Whether the author's figure was used to make the model of the GPU.
        why: Why the figure is missed; "" if that is not known, or if it is not missed.
    """

    label: str
    author: str
    ours: str
    ratio: float
    within: float
    used: bool
    why: str

    @property
    def missed(self) -> bool:
        """Whether the figure differs from the author's by more than it should."""
        return not 1 / self.within <= self.ratio <= self.within


def against_author(row: Row, device: str, figures: Mapping[str, str]) -> Iterator[Against]:
    """Yields each figure that should be within a factor of the author's. Yields none if the author had another device.

    Args:
        row: The row.
        device: The model name of the device that `figures` are of.
        figures: Figures by their labels, as the script printed them.
    """
    author = row.author
    if author is None or author.device != device:
        return
    for label, within in author.within.items():
        if label in figures:
            ratio = figure(label, figures[label]).value / figure(label, author.figures[label]).value
            used, why = label in author.used, row.missed.get(label, "")
            yield Against(label, author.figures[label], figures[label], ratio, within, used, why)
