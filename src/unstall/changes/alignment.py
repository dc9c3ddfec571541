"""Finds the ratio of steps that do the same work in run A and in run B.

The ratio may differ from 1 if the steps of the two runs were detected in different ways. For example, one step of A may
do the work of two steps of B.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unstall.changes.sides import ComparedRun, Sides
from unstall.diagnose.analyse import analyse
from unstall.diagnose.run import Run
from unstall.locate.step_spans import steps_of
from unstall.result import Steps
from unstall.timeline.columns import I64, DeviceKind

_AS_OFTEN = 0.9  # the first and last steps of a recording may lack some launches
_NEARLY_ALL = 0.8  # of a whole run's kernels: what comes once, before the steps, is no part of them


@dataclass(frozen=True, slots=True)
class Alignment:
    """A ratio of steps: `a` steps of run A do the same work as `b` steps of run B. At least one of
    the two numbers is 1.

    Attributes:
        a: The number of steps of A.
        b: The number of steps of B.
        things: Whether kernels or lines were compared to find this ratio.
        common: How many kernels or lines occur in both runs.
        agree: How many of these kernels or lines occur equally often in `a` steps of A and in `b`
            steps of B.
    """

    a: int = 1
    b: int = 1
    things: Literal["kernel", "line"] = "kernel"
    common: int = 0
    agree: int = 0

    @property
    def same_work(self) -> bool:
        """Whether most kernels or lines that both runs have occur equally often in `a` steps of A
        and in `b` steps of B.

        Not all of them need to, because a change to the program usually replaces some kernels.
        """
        return 2 * self.agree > self.common

    @property
    def one_to_one(self) -> bool:
        """Whether one step of A is compared with one step of B."""
        return self.a == self.b == 1


def same_boundaries(a: Steps, b: Steps) -> bool:
    """Returns whether the steps of two runs were detected in the same way.

    Steps with different names were detected in different ways, with two exceptions. If steps were
    detected by repeated kernels, their name is only that of the kernel at their start. If unstall's
    recorder detected the steps by calls of an optimizer, no name is recorded.
    """
    kinds = {a.marks or a.found_by, b.marks or b.found_by}
    names = {of.name for of in (a, b) if of.marks is None}
    return len(kinds) == 1 and (kinds == {"period"} or len(names) <= 1)


def same_extent(a: Steps, b: Steps) -> bool:
    """Returns whether both runs were divided into steps, or neither was."""
    return (a.found_by == "whole") == (b.found_by == "whole")


def align(sides: Sides, a: Steps, b: Steps) -> Alignment:
    """Finds the ratio of steps that do the same work in run A and in run B.

    If the steps were detected in the same way, the ratio is 1 to 1. If not, it comes from the
    kernels that occur in both runs: from how often each of them runs per step of A and per step of
    B. If no kernel occurs in both runs, it comes from source lines in the same way, because each
    iteration of a loop reaches the loop's lines once.

    Args:
        sides: Both runs.
        a: How run A is divided into steps.
        b: How run B is divided into steps.
    """
    if same_boundaries(a, b) and a.found_by != "period":
        return Alignment()
    found = _most_agree(sides, "kernel", _kernel_names(sides.a), _kernel_names(sides.b))
    if not found.common and sides.matched_by == "line":
        found = _most_agree(sides, "line", _visits(sides.a), _visits(sides.b))
    if same_boundaries(a, b) and not (found.same_work and _divides(found, sides)):
        return Alignment()
    if same_extent(a, b) or not found.same_work:
        return found
    # A whole run also has what comes before and after its steps.
    counted = _kernel_names(sides.a if a.found_by == "whole" else sides.b)
    shared = np.intersect1d(_kernel_names(sides.a), _kernel_names(sides.b))
    mostly = np.isin(counted, shared).sum() >= _NEARLY_ALL * len(counted) and found.agree >= _NEARLY_ALL * found.common
    return found if mostly else Alignment(things=found.things, common=found.common)


def comparable(found: Alignment, sides: Sides, a: Steps, b: Steps) -> bool:
    """Returns whether the steps of two runs can be compared.

    They can be compared if they were detected in the same way, or if `found` shows that they do the
    same work.

    Args:
        found: The ratio of steps that do the same work.
        sides: Both runs.
        a: How run A is divided into steps.
        b: How run B is divided into steps.
    """
    if same_boundaries(a, b) and found.one_to_one:
        return True
    return found.same_work and found.common > 0 and _divides(found, sides)


def grouped(run: Run, number: int) -> Run:
    """Returns a copy of a run in which every `number` consecutive steps are one step.

    If fewer than `number` steps remain at the end, these steps are dropped.
    """
    if number == 1:
        return run
    groups, steps = len(run.steps) // number, run.steps
    start, end = steps.start[: groups * number : number], steps.end[number - 1 : groups * number : number]
    return analyse(
        run.timeline, steps=steps_of(run.timeline, steps.found_by, steps.name or "", start, end), places=run.places
    )


def _divides(found: Alignment, sides: Sides) -> bool:
    return sides.a.steps >= found.a and sides.b.steps >= found.b


def _most_agree(sides: Sides, things: Literal["kernel", "line"], of_a: I64, of_b: I64) -> Alignment:
    """Returns the number of steps of A, and of B, in which most kernels (or lines) occur equally often.

    For example, a kernel that occurs twice in each step of A, and once in each step of B, occurs equally often in 1
    step of A and in 2 steps of B.

    `of_a` has one element for each time that a kernel (or a line) occurs in run A. `of_b` has one element for each time
    in run B. Each element is a number that identifies the kernel's name (or the line).
    """
    (name_a, times_a), (name_b, times_b) = (np.unique(of, return_counts=True) for of in (of_a, of_b))
    _, in_a, in_b = np.intersect1d(name_a, name_b, assume_unique=True, return_indices=True)
    rates = times_a[in_a] / sides.a.steps, times_b[in_b] / sides.b.steps
    votes = Counter(filter(None, map(_ratio, *(rate.tolist() for rate in rates))))
    if not votes:
        return Alignment(things=things, common=len(in_a))
    # Of ratios with as many votes, the nearest to one to one.
    (a, b), agree = min(votes.items(), key=lambda each: (-each[1], sum(each[0]), each[0]))
    return Alignment(a, b, things, len(in_a), agree)


def _ratio(a: float, b: float) -> tuple[int, int] | None:
    """Returns (steps of A, steps of B) in which something occurs equally often, or None.

    `a` and `b` are the numbers of occurrences in one step of A and in one step of B. At least one number of the result
    is 1. For example, a = 2 and b = 1 give (1, 2). Returns None if no such pair of whole numbers fits.
    """
    more = max(round(max(a, b) / min(a, b)), 1)
    if min(a, b) * more < _AS_OFTEN * max(a, b) or max(a, b) < _AS_OFTEN * min(a, b) * more:
        return None
    return (1, more) if a > b else (more, 1)


def _kernel_names(side: ComparedRun) -> I64:
    """Returns, for each kernel that ran in the steps, a number that identifies the kernel's name. Equal names have the
    same number in both runs.

    Memsets count as kernels.
    """
    device = side.run.timeline.device
    name = device.name[side.ops[device.kind[side.ops] != DeviceKind.COPY]]
    names: I64 = side.text[name[name >= 0]] if len(side.text) else name.astype(np.int64)
    return names


def _visits(side: ComparedRun) -> I64:
    """Returns the numbers of the places that the host reaches, in order of time.

    Successive launches at the same place count once.
    """
    launch = side.run.timeline.device.launch[side.ops]
    calls = np.unique(launch[launch >= 0])
    calls = calls[np.argsort(side.run.timeline.host.start[calls], kind="stable")]
    place = side.place[calls]
    comes: I64 = place[np.append(True, place[1:] != place[:-1])] if len(place) else place
    reached: I64 = comes[comes > 0]
    return reached


def in_common(found: Alignment) -> str:
    """Returns the beginning of a sentence: it says how many kernels or lines two runs have in common."""
    if not found.common:
        return "No kernel runs in both to show whether a step is the same work"
    both = f"{found.common:,} {found.things}{'' if found.common == 1 else 's'} that both run"
    if found.one_to_one:
        return f"Of {both}, {found.agree:,} run as often in a step of A as in one of B"
    return f"Of {both}, {found.agree:,} run as often in {_steps(found.a, 'A')} as in {_steps(found.b, 'B')}"


def _steps(number: int, run: str) -> str:
    return f"a step of {run}" if number == 1 else f"{number:,} steps of {run}"
