"""Finds in a recording what `unstall.graphed` runs without a graph.

These are its one-time checks, in which it observes functions before it captures them as CUDA graphs,
and compares the graphs with the functions; and functions that cannot be captured, or gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from unstall.diagnose.left_out import left_out_of, why_left_out
from unstall.diagnose.run import Run
from unstall.figures import counted, duration, share
from unstall.locate.proving import EAGERLY, FOR_SPEED, PROVING_FILE, proving_times
from unstall.result import Finding, Where
from unstall.timeline.columns import I64

_WORTH = 0.01  # of the window
_MOSTLY = 0.5  # of the launches
_MOST_OF_ONE_SHAPE = 8
"""The most steps that the checks of one input shape take. For each of two functions, two steps observe, one step
captures, and one step compares."""


def note_of_checks(run: Run) -> str | None:
    """Returns a sentence on how the one-time checks of `unstall.graphed` affect the figures of a
    run. Returns None if they do not affect them.

    They affect the figures if they took more than 1 % of the time of the steps that count. If no
    frames were recorded, the checks cannot be found, and the result is None.
    """
    took = proving_times(run.timeline).clip(*run.window).total
    if took <= _WORTH * run.wall:  # also if both are 0
        return None
    return (
        f"{share(took, run.wall)} of the recorded time goes to unstall.graphed checking its captures, once each: "
        "record later steps (unstall run --warmup N) to see the steady state"
    )


def without_checks(findings: Iterable[Finding]) -> list[Finding]:
    """Returns `findings` without those at lines of `unstall.graphed` that check captured graphs.

    Users cannot fix these lines, and these lines do not run in later steps.
    """
    return [each for each in findings if not is_check(each.where)]


def is_check(where: Where) -> bool:
    """Returns whether a source line is in the file of `unstall.graphed` that checks captured graphs."""
    return where.file is not None and PROVING_FILE.match(where.file) is not None


def remedy_without_graph(run: Run, rows: I64) -> tuple[str, str | None] | None:
    """Returns the advice for launches, and its edit, if `unstall.graphed` calls most of them already,
    but without a graph. Returns None if it does not.

    Args:
        run: The recorded run.
        rows: The launches, as indices of rows of `timeline.host`.
    """
    host = run.timeline.host
    source = np.where(host.forward[rows] >= 0, host.forward[rows], rows)  # a backward's launches: of its forward

    def mostly(method: str) -> bool:
        return bool(run.without_graph[method][source].mean() > _MOSTLY)

    if mostly(FOR_SPEED):
        return "unstall.graphed measured here that a graph gains nothing", None
    if mostly(EAGERLY):
        return "unstall.graphed runs this eagerly: print(….stats()) says why, and what helps", "graph"
    return None


def shortfall_of(run: Run) -> str | None:
    """Returns a warning if most steps were left out of the figures; None if they were not. Reports
    show the warning before all figures.

    The warning says how many steps the figures are based on, how long the other steps take, and
    what to do.
    """
    left_out = left_out_of(run)
    if left_out is None or not left_out.most:
        return None
    called = run.without_graph[EAGERLY] | run.without_graph[FOR_SPEED]
    within = called[run.timeline.host.start >= run.window[0]]
    if len(within) and within.mean() > _MOSTLY:
        cure = "Now it runs them eagerly: print(….stats()) says why"
    elif left_out.apart or left_out.proving > _MOST_OF_ONE_SHAPE:
        cure = (
            "Likely the shapes of its inputs do not recur: pad them to one length, or capture with "
            'unstall.graphed(…, shapes="bucket")'
        )
    else:
        cure = "Later steps prove nothing: let the program take more"
    return (
        f"these figures are of only {counted(len(run.steps), 'step')} of {left_out.of:,}. Left out: "
        f"{why_left_out(left_out)}. The steps left out take {duration(left_out.mean_ns)} in the mean. {cure}"
    )
