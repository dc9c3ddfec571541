"""The result of experiments, as data. Its JSON form is `unstall.course/1`."""

from __future__ import annotations

import msgspec

from unstall.course.figures import Figure

SCHEMA = "unstall.course/1"


class Checked(msgspec.Struct, frozen=True):
    """A checked part of a phenomenon.

    Attributes:
        sentence: What should hold.
        holds: Whether it holds.
        value: The figure, or the ratio of two figures. None if a figure is missing.
        reason: The value and its limits, in words.
    """

    sentence: str
    holds: bool
    value: float | None
    reason: str


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """What one experiment showed.

    Attributes:
        name: The name of the row.
        number: The number of the row.
        question: The question that the experiment answers.
        gpu: The name of the virtual GPU, or None for this machine's GPU.
        output: What the script printed.
        said: What it printed to stderr.
        failure: Why the script failed; "" if it did not.
        figures: The figures in the output.
        checks: The checked phenomenon.
        learn: What to learn from it.
    """

    name: str
    number: int
    question: str
    gpu: str | None
    output: str
    said: str
    failure: str
    figures: tuple[Figure, ...]
    checks: tuple[Checked, ...]
    learn: str

    @property
    def holds(self) -> bool:
        """Whether the script ran, and everything that should hold does."""
        return not self.failure and all(check.holds for check in self.checks)


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The results of several experiments."""

    schema: str = SCHEMA
    experiments: tuple[Experiment, ...]
