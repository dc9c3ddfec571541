"""Compares the figures of an experiment with those that its author saw, if both were measured on
the same kind of GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unstall.course.figures import figure
from unstall.course.row import Row


@dataclass(frozen=True, slots=True)
class Against:
    """One figure of an experiment, compared with that of the experiment's author.

    Attributes:
        label: What the figure is of.
        author: The author's figure, as text.
        ours: Our figure, as text.
        ratio: Our figure divided by the author's.
        within: The factor by which the two may differ.
        used: Whether the author's figure was used to make the model of the GPU.
        why: Why the figures differ by more than `within`; "" if they do not, or if the reason is
            not known.
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
        """Whether our figure differs from the author's by more than the factor `within`."""
        return not 1 / self.within <= self.ratio <= self.within


def against_author(row: Row, device: str, figures: Mapping[str, str]) -> Iterator[Against]:
    """Yields the figures of an experiment for which a factor is known by which they may differ from
    the author's. Yields none if the author had another device.

    Args:
        row: The experiment.
        device: The model name of the device on which `figures` were measured.
        figures: Our figures by their labels, as the script printed them.
    """
    author = row.author
    if author is None or author.device != device:
        return
    for label, within in author.within.items():
        if label in figures:
            ratio = figure(label, figures[label]).value / figure(label, author.figures[label]).value
            used, why = label in author.used, row.missed.get(label, "")
            yield Against(label, author.figures[label], figures[label], ratio, within, used, why)
