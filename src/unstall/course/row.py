"""A row of the course: an experiment's question, its author's figures, and the checks of its phenomenon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from unstall.virtual.options import HostClock, Numerics


@dataclass(frozen=True, slots=True)
class Author:
    """What the author of an experiment saw.

    Attributes:
        device: The author's device, such as "Tesla T4".
        figures: The figures by their labels, each as a script prints it: {"with synchronize": "534 us"}.
        within: For some labels, the factor within which a virtual GPU of the author's kind must meet the figure. 1
            means that they must be equal.
        used: The labels of figures that were used to make the model of the virtual GPU, so that meeting them proves
            little.
    """

    device: str
    figures: Mapping[str, str]
    within: Mapping[str, float] = field(default_factory=dict)
    used: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A part of an experiment's phenomenon, as limits on a figure or on the ratio of two figures.

    A check holds on every GPU, so it limits no time: only ratios, counts and bytes.

    Attributes:
        sentence: What holds, as a sentence.
        of: The label of the figure.
        over: The label of the figure by which `of` is divided. If None, `of` itself is checked.
        at_least: The lower limit.
        at_most: The upper limit.
        equal: The exact value, in place of limits.
    """

    sentence: str
    of: str
    over: str | None = None
    at_least: float = -math.inf
    at_most: float = math.inf
    equal: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One experiment.

    Attributes:
        number: The number of the row, from 1.
        topic: The heading under which the row is listed.
        related: The numbers of rows to do next.
        question: The question that the experiment answers.
        author: What the author saw; None if no figures of an author are known.
        checks: The phenomenon.
        learn: What to learn from the experiment, in two or three sentences.
        missed: For each label at which our figure is far from the author's: why.
        numerics: What the virtual GPU computes. "skip" leaves out the values of large tensors, which is much faster.
        host: How the virtual GPU times the host's own work. "mixed" is for rows about work on the CPU.
        then: Further commands for the trace that `unstall course NAME --explain` leaves: pairs of (command, what it
            shows).
        needs: A package that the script imports, besides PyTorch; "" if none. `unstall[course]` has it.
    """

    number: int
    topic: str
    related: tuple[int, ...] = ()
    question: str
    author: Author | None = None
    checks: tuple[Check, ...]
    learn: str
    missed: Mapping[str, str] = field(default_factory=dict)
    numerics: Numerics = "skip"
    host: HostClock = "modelled"
    then: tuple[tuple[str, str], ...] = ()
    needs: str = ""
