"""`diff`: compares the runs of two reports."""

from __future__ import annotations

from unstall._version import __version__
from unstall.diagnose.explain import Diagnosis
from unstall.diagnose.run import Run
from unstall.changes.caveats import caveats, has_work, steps_compare
from unstall.changes.copies import copies
from unstall.changes.kernels import kernels, launches, shared
from unstall.changes.lines import lines
from unstall.changes.result import DiffResult, Side, Unchanged, alike
from unstall.changes.sides import bring_together
from unstall.changes.steps import accounts, step_time
from unstall.changes.summary import summarise
from unstall.changes.waits import waits
from unstall.errors import UsageError


def diff(a: Diagnosis, b: Diagnosis) -> DiffResult:
    """Returns what changed from run A to run B, matched by line and operator.

    Raises UsageError for a report that was loaded from JSON, because it holds no run.
    """
    if a.run is None or b.run is None:
        raise UsageError("a saved result holds no timeline: compare the traces that results were made from")
    sides = bring_together(a.run, b.run)
    works = has_work(a.result) and has_work(b.result)
    common = shared(sides)
    comparable = works and steps_compare(a.result, b.result, common)
    step = step_time(a.run, b.run) if comparable else None
    wait_changes, same_waits = waits(sides) if comparable else ((), 0)
    copy_changes, same_copies = copies(sides) if comparable else ((), 0)
    kernel_changes, same_kernels = kernels(sides) if comparable else ((), 0)
    line_changes, same_lines = lines(sides) if comparable else ((), 0)
    parts = accounts(a.run, b.run) if comparable else ()
    launched = launches(sides) if comparable else None
    differs = not alike(launched, wait_changes, copy_changes, kernel_changes, line_changes)
    side_a, side_b = _side(a, a.run), _side(b, b.run)
    return DiffResult(
        version=__version__,
        a=side_a,
        b=side_b,
        matched_by=sides.matched_by,
        caveats=caveats(a, b, sides.matched_by, common, step),
        summary=summarise(side_a, side_b, step, parts, launched, differs=differs),
        step_ns=step,
        accounts=parts,
        waits=wait_changes,
        copies=copy_changes,
        launches=launched,
        kernels=kernel_changes,
        lines=line_changes,
        unchanged=Unchanged(waits=same_waits, copies=same_copies, kernels=same_kernels, lines=same_lines),
    )


def _side(report: Diagnosis, run: Run) -> Side:
    lengths, result = run.step_lengths, report.result
    return Side(
        source=result.source,
        integrity=result.integrity,
        steps=result.steps,
        shortest_step_ns=int(lengths.min()),
        longest_step_ns=int(lengths.max()),
        bound_by=result.verdict.bound_by,
    )
