"""`diff`: compares the runs of two reports."""

from __future__ import annotations

import msgspec

from unstall._version import __version__
from unstall.changes.alignment import Alignment, align, comparable, grouped, same_boundaries
from unstall.changes.caveats import caveats, has_work
from unstall.changes.copies import copies
from unstall.changes.kernels import kernels, launches
from unstall.changes.lines import lines
from unstall.changes.promise import promise_of
from unstall.changes.result import DiffResult, Side, Time, Unchanged, alike
from unstall.changes.sides import bring_together
from unstall.changes.steps import accounts, step_time
from unstall.changes.summary import summarise
from unstall.changes.waits import waits
from unstall.diagnose.explain import Diagnosis
from unstall.diagnose.run import Run
from unstall.result import Result


def diff(a: Diagnosis, b: Diagnosis) -> DiffResult:
    """Compares two runs, by line and operator.

    If a report was read from JSON, only its step time and its plan are compared.

    Args:
        a: The report of the earlier run.
        b: The report of the later run.
    """
    if a.run is None or b.run is None:
        return _of_results(a, b)
    sides = bring_together(a.run, b.run)
    works = has_work(a.result) and has_work(b.result)
    found = align(sides, a.result.steps, b.result.steps)
    compares = works and comparable(found, sides, a.result.steps, b.result.steps)
    run_a, run_b = a.run, b.run
    if compares and not found.one_to_one:
        run_a, run_b = grouped(run_a, found.a), grouped(run_b, found.b)
        sides = bring_together(run_a, run_b)
    step = step_time(run_a, run_b) if compares else None
    wait_changes, same_waits = waits(sides) if compares else ((), 0)
    copy_changes, same_copies = copies(sides) if compares else ((), 0)
    kernel_changes, same_kernels = kernels(sides) if compares else ((), 0)
    line_changes, same_lines = lines(sides) if compares else ((), 0)
    parts = accounts(run_a, run_b) if compares else ()
    launched = launches(sides) if compares else None
    differs = not alike(launched, wait_changes, copy_changes, kernel_changes, line_changes)
    return DiffResult(
        version=__version__,
        a=_side(a.result, a.run),
        b=_side(b.result, b.run),
        matched_by=sides.matched_by,
        caveats=caveats(a, b, sides.matched_by, found, step),
        summary=summarise(_side(a.result, run_a), _side(b.result, run_b), step, parts, launched, differs=differs),
        compared=(found.a, found.b) if compares else (1, 1),
        step_ns=step,
        promise=promise_of(a.result, b.result, found, sides) if compares else None,
        accounts=parts,
        waits=wait_changes,
        copies=copy_changes,
        launches=launched,
        kernels=kernel_changes,
        lines=line_changes,
        unchanged=Unchanged(waits=same_waits, copies=same_copies, kernels=same_kernels, lines=same_lines),
    )


def _of_results(a: Diagnosis, b: Diagnosis) -> DiffResult:
    """Compares two results without their events. Compares only the step times, and finds which changes of A's plan were
    made in B.
    """
    works = has_work(a.result) and has_work(b.result)
    compares = works and same_boundaries(a.result.steps, b.result.steps)
    step = Time(a=a.result.steps.mean_ns, b=b.result.steps.mean_ns) if compares else None
    side_a, side_b = _side(a.result, a.run), _side(b.result, b.run)
    certain = msgspec.structs.replace(step, noise=0) if step else None  # how much the steps differ is not saved
    return DiffResult(
        version=__version__,
        a=side_a,
        b=side_b,
        matched_by="line",
        caveats=caveats(a, b, "line", Alignment(), step),
        summary=summarise(side_a, side_b, certain, (), None, differs=True),
        step_ns=step,
        promise=promise_of(a.result, b.result, Alignment()) if compares else None,
        accounts=(),
        waits=(),
        copies=(),
        launches=None,
        kernels=(),
        lines=(),
        unchanged=Unchanged(),
    )


def _side(result: Result, run: Run | None) -> Side:
    lengths = None if run is None else run.step_lengths
    return Side(
        source=result.source,
        integrity=result.integrity,
        steps=result.steps,
        shortest_step_ns=result.steps.mean_ns if lengths is None else int(lengths.min()),
        longest_step_ns=result.steps.mean_ns if lengths is None else int(lengths.max()),
        bound_by=result.verdict.bound_by,
    )
