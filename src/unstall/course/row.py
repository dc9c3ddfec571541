"""An experiment of the course (a row of its table): the question, the figures that the author saw,
and the checks of the figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from unstall.virtual.options import HostClock, Numerics


@dataclass(frozen=True, slots=True)
class Author:
    """What the author of an experiment of the course saw.

    Attributes:
        device: The author's device, such as "Tesla T4".
        figures: Maps a label to the author's figure, as a script prints it: {"with synchronize":
            "534 us"}.
        within: Maps some of the labels to a factor. On a virtual GPU of the author's kind, the
            figure may differ from the author's by this factor. 1 means that both must be equal.
        used: The labels of figures that were used to make the model of the virtual GPU. That the
            model meets them proves little.
    """

    device: str
    figures: Mapping[str, str]
    within: Mapping[str, float] = field(default_factory=dict)
    used: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A check of an experiment's figures: limits on a figure or on the ratio of two figures.

    A check must hold on every GPU, so it limits no time: only ratios, counts and bytes.

    Attributes:
        sentence: What holds, as a sentence.
        of: The label of the figure.
        over: The label of the figure by which the figure `of` is divided. If None, the figure `of`
            itself is checked.
        at_least: The lower limit; None if there is none.
        at_most: The upper limit; None if there is none.
        equal: The exact value, instead of limits; None if there are limits.
    """

    sentence: str
    of: str
    over: str | None = None
    at_least: float = -math.inf
    at_most: float = math.inf
    equal: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One experiment of the course.

    Attributes:
        number: The number of the experiment, from 1.
        topic: The heading under which the experiment is listed.
        related: The numbers of the experiments to do next.
        question: The question that the experiment answers.
        author: What the author saw; None if no figures of an author are known.
        checks: What the figures should show on every GPU.
        learn: What to learn from the experiment, in one to nine sentences; each line is a paragraph. A label in braces
            stands for its figure: "launching takes {bench, host}".
        mine: How to tell from one's own program which of the cases it is; "" if there is only one. May have labels in
            braces, too.
        change: What to change in a program of one's own; "" if there is nothing to change. Lines after the first are
            Python code.
        missed: Maps the label of a figure that is far from the author's to the reason.
        differs: Maps the label of a figure that a virtual H200 and a real one give differently to the reason; "" if
            the reason is not known. Every figure that differs by a factor of 3 has an entry here, or in `missed`.
        prints: Whether docs/course.md shows what the script prints besides figures.
        searched: Words by which the experiment should be found, and which none of its texts has.
        source: The address of the page where the question was asked, or which has the experiment or the advice; "" if
            there is none.
        numerics: What the virtual GPU computes. "skip" leaves out the values of large tensors,
            which is much faster.
        host: How the virtual GPU times the host's own work. "mixed" is for experiments with work on
            the CPU.
        finding: The rule whose finding `unstall course NAME --explain` shows first, such as
            "full-queue", or the rule and the line, such as "first-use:19"; or "memory" for the memory over time.
            "" if nothing in the report is about the question.
        then: Further commands for the trace that `unstall course NAME --explain` leaves: pairs of
            (command, what it shows).
        needs: A package that the script imports, besides PyTorch; "" if none. `unstall[course]`
            installs it, too.
        on_gpu: Whether the script uses a GPU. If not, it needs no virtual GPU either.
    """

    number: int
    topic: str
    related: tuple[int, ...] = ()
    question: str
    author: Author | None = None
    checks: tuple[Check, ...]
    learn: str
    mine: str = ""
    change: str = ""
    missed: Mapping[str, str] = field(default_factory=dict)
    differs: Mapping[str, str] = field(default_factory=dict)
    prints: bool = False
    searched: str = ""
    source: str = ""
    numerics: Numerics = "skip"
    host: HostClock = "modelled"
    finding: str = ""
    then: tuple[tuple[str, str], ...] = ()
    needs: str = ""
    on_gpu: bool = True
