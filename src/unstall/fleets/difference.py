"""Compares two jobs: plain data with the JSON form `unstall.fleet-diff/1`. Times are in ns per step."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import Literal

import msgspec

from unstall._version import __version__
from unstall.fleets.result import MOST_LINES, Cause, FleetResult
from unstall.result import Where

SCHEMA = "unstall.fleet-diff/1"
_MOST_LINES = 20
_WORTH = 0.001  # of the longer step: smaller changes of a line are left out


class JobSide(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two jobs of a comparison.

    Attributes:
        source: The files that were read: a folder, a glob, or a number of files.
        ranks: The number of ranks with a trace.
        steps: The number of steps that all ranks have.
        step_ns: The mean length of a step, in ns.
        noise_ns: The standard error of `step_ns`, in ns. None if the steps are too few to tell.
        bound_by: What holds up the job, as in `FleetVerdict.bound_by`.
    """

    source: str
    ranks: int
    steps: int
    step_ns: int
    noise_ns: int | None
    bound_by: str


class StragglerChange(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that makes the other ranks wait in job A, in job B, or in both.

    Attributes:
        rank: The number of the rank.
        status: "new" if the rank makes the others wait only in B. "gone" if only in A. "still" if in both.
        late_ns: A pair (in A, in B): how much longer the rank's own work takes than that of its peers, in ns per step.
            None for a job in which the rank does not make the others wait.
        cause: The largest cause of the rank's delay in B. If the rank does not make the others wait in B, the largest
            cause in A. None if no cause is known.
    """

    rank: int
    status: Literal["new", "gone", "still"]
    late_ns: tuple[int | None, int | None]
    cause: Cause | None


class UseChange(msgspec.Struct, frozen=True, kw_only=True):
    """The communication in process groups of one use, in job A and in job B.

    Attributes:
        use: The use of the groups, such as "data" or "tensor" (parallelism).
        transfer_ns: A pair (in A, in B): the time in transfers, in ns per rank and step.
        waiting_ns: A pair (in A, in B): the time spent waiting for other ranks, in ns per rank and step.
    """

    use: str
    transfer_ns: tuple[int, int]
    waiting_ns: tuple[int, int]


class LineChange(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one source line, in job A and in job B.

    Attributes:
        where: The source line.
        cost_ns: A pair (in A, in B): the time on device and host together, with the host's waits, in ns per step, as a
            mean over all ranks. If the line is not among the costliest lines of a job, the most that it may cost there.
    """

    where: Where
    cost_ns: tuple[int, int]


class FleetDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from job A to job B. Times are in ns per step.

    Attributes:
        schema: Name and version of the JSON form.
        version: The version of unstall.
        a: The first job.
        b: The second job.
        promised_ns: The step time that the report of A predicted for A without the delay of its first straggler. None
            if A has no straggler.
        promised_ranks: The numbers of these ranks.
        caveats: Sentences about what limits the comparison.
        stragglers: The ranks that make the others wait in A or in B, in ascending order.
        uses: One row for each use of process groups in A or in B, such as data parallelism.
        lines: Up to 20 source lines whose cost changed most. The line with the largest change is first.
    """

    schema: str = SCHEMA
    version: str
    a: JobSide
    b: JobSide
    promised_ns: int | None
    promised_ranks: tuple[int, ...]
    caveats: tuple[str, ...]
    stragglers: tuple[StragglerChange, ...]
    uses: tuple[UseChange, ...]
    lines: tuple[LineChange, ...]

    @property
    def beyond_noise(self) -> bool | None:
        """Whether the step times of A and B differ by more than chance explains: by more than twice the standard error
        of their difference. None if a job has too few steps to tell."""
        if self.a.noise_ns is None or self.b.noise_ns is None:
            return None
        noise = math.hypot(self.a.noise_ns, self.b.noise_ns)
        return abs(self.b.step_ns - self.a.step_ns) > 2 * noise


def compare(a: FleetResult, b: FleetResult) -> FleetDifference:
    """Returns what changed from job `a` to job `b`."""
    promised_ns, promised_ranks = _promised(a, b)
    return FleetDifference(
        version=__version__,
        a=_side(a),
        b=_side(b),
        promised_ns=promised_ns,
        promised_ranks=promised_ranks,
        caveats=tuple(_caveats(a, b)),
        stragglers=_stragglers(a, b),
        uses=_uses(a, b),
        lines=_lines(a, b),
    )


def _promised(a: FleetResult, b: FleetResult) -> tuple[int | None, tuple[int, ...]]:
    """Returns the step time that the report of A predicted without its first stragglers, and these. They are those that
    are gone in B, as each gain is that of mending a rank after those before it; else the very first."""
    if not a.stragglers:
        return None, ()
    still = {each.rank for each in b.stragglers}
    gone = list(takewhile(lambda each: each.rank not in still, a.stragglers)) or a.stragglers[:1]
    return a.replayed_step_ns - sum(each.gain_ns for each in gone), tuple(each.rank for each in gone)


def _side(result: FleetResult) -> JobSide:
    counted = result.steps - 1  # the first step does not count
    error = result.step_spread * result.step_ns / (counted - 1) ** 0.5 if counted > 1 else None
    return JobSide(
        source=result.source,
        ranks=len(result.ranks),
        steps=result.steps,
        step_ns=result.step_ns,
        noise_ns=None if error is None else round(error),
        bound_by=result.verdict.bound_by,
    )


def _caveats(a: FleetResult, b: FleetResult) -> list[str]:
    said = []
    if a.world_size != b.world_size:
        said.append(f"the jobs have {a.world_size} and {b.world_size} ranks, so their steps may do different work")
    elif [each.rank for each in a.ranks] != [each.rank for each in b.ranks]:
        said.append("the jobs have traces of different ranks")
    if a.unit != b.unit:
        said.append("steps were found in one of the jobs only")
    return said


def _stragglers(a: FleetResult, b: FleetResult) -> tuple[StragglerChange, ...]:
    before, after = ({each.rank: each for each in result.stragglers} for result in (a, b))
    changes = []
    for rank in sorted(before.keys() | after.keys()):
        one, other = before.get(rank), after.get(rank)
        status: Literal["new", "gone", "still"] = "new" if one is None else "gone" if other is None else "still"
        shown = other or one
        changes.append(
            StragglerChange(
                rank=rank,
                status=status,
                late_ns=(one.late_ns if one else None, other.late_ns if other else None),
                cause=next(iter(shown.causes), None) if shown else None,
            )
        )
    return tuple(changes)


def _uses(a: FleetResult, b: FleetResult) -> tuple[UseChange, ...]:
    before, after = ({each.use: each for each in result.groups} for result in (a, b))

    def of(use: str, column: str) -> tuple[int, int]:
        one, other = (getattr(side[use], column) if use in side else 0 for side in (before, after))
        return one, other

    return tuple(
        UseChange(use=use, transfer_ns=of(use, "transfer_ns"), waiting_ns=of(use, "waiting_ns"))
        for use in sorted(before.keys() | after.keys())
    )


def _lines(a: FleetResult, b: FleetResult) -> tuple[LineChange, ...]:
    costs = [
        {line.where.key: line.device_ns + line.host_ns + line.wait_ns for line in result.lines} for result in (a, b)
    ]
    # A line that is not among the costliest of a job costs at most as much as the last of these.
    most = [min(each.values(), default=0) if len(each) >= MOST_LINES else 0 for each in costs]
    places = {line.where.key: line.where for result in (a, b) for line in result.lines}
    least = _WORTH * max(a.step_ns, b.step_ns)
    changes = []
    for key, where in places.items():
        one, other = costs[0].get(key), costs[1].get(key)
        before = min(most[0], other or 0) if one is None else one
        after = min(most[1], before) if other is None else other
        changes.append(LineChange(where=where, cost_ns=(before, after)))
    changes = [each for each in changes if abs(each.cost_ns[1] - each.cost_ns[0]) >= least]
    changes.sort(key=lambda each: -abs(each.cost_ns[1] - each.cost_ns[0]))
    return tuple(changes[:_MOST_LINES])
