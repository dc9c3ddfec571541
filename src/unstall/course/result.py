"""The results of experiments of the course, as data. Their JSON form is `unstall.course/1`."""

from __future__ import annotations

import msgspec

from unstall.course.figures import Figure, figure_in

SCHEMA = "unstall.course/1"


class Checked(msgspec.Struct, frozen=True):
    """The outcome of one check of an experiment's figures.

    Attributes:
        sentence: What should hold.
        holds: Whether it holds. None if it was not checked, as a figure is missing.
        value: The figure that was checked, or the ratio of two figures. None if a figure is
            missing.
        reason: The value and its limits, in words; or why it was not checked.
    """

    sentence: str
    holds: bool | None
    value: float | None
    reason: str


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """What one experiment of the course showed.

    Attributes:
        name: The name of the experiment.
        number: The number of the experiment.
        question: The question that the experiment answers.
        gpu: The name of the virtual GPU; None for this machine's GPU.
        changed: Whether the script is a changed copy.
        host: How the virtual GPU timed the host's own work, such as "mixed"; "" for a GPU of this machine.
        output: What the script printed to stdout.
        said: What the script printed to stderr.
        failure: Why the script failed; "" if it did not fail.
        figures: The figures in `output`.
        checks: The outcomes of the checks of these figures.
        learn: What to learn from the experiment. Each line is a paragraph.
        mine: How to tell from one's own program which of the cases it is; "" if there is only one.
        change: What to change in a program of one's own; "" if there is nothing to change. Lines after the first are
            Python code.
        source: The address of the page where the question was asked, or which has the experiment or the advice; "" if
            there is none.
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
    mine: str = ""
    change: str = ""
    source: str = ""
    changed: bool = False
    host: str = ""

    @property
    def others(self) -> str:
        """What the script printed to stdout besides figures."""
        return "\n".join(line for line in self.output.splitlines() if figure_in(line) is None).strip("\n")

    @property
    def holds(self) -> bool:
        """Whether the script ran, and all checks of its figures hold."""
        return not self.failure and all(check.holds for check in self.checks)


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The results of several experiments of the course."""

    schema: str = SCHEMA
    experiments: tuple[Experiment, ...]
