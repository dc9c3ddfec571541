"""Finds why a rank is late: the source lines at which it does more than its peers, or takes longer for the same. Peers
are the ranks that do the same work on different data."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstall.diagnose.rules.device_work import DEVICE_WORK
from unstall.fleets.job import Job
from unstall.fleets.result import Cause
from unstall.fleets.summary import LOADING, Cost, Rank, explains
from unstall.result import Finding, Where
from unstall.timeline.columns import I64
from unstall.timeline.grouping import is_in, median

_Reals = NDArray[np.float64]
_MOST_CAUSES = 3
_NOTABLE = 0.1  # of what the rank is late by
_EVEN = 0.25  # lines have a common factor if their factors spread by less than this share of (the factor - 1)
_LEAST_LINES = 2
_COUNTS = 0.01  # of the kernels' time: lines with less do not tell whether all of them are slower
_PAIR = 2
_SINGULAR = {
    "its peers do ": "its peer does ",
    "its peers launch ": "its peer launches ",
    "its peers'": "its peer's",
    "its peers": "its peer",
}
_GROWN = 1 / 3  # of how much longer a rank takes: at lines with more work, for the cause to be more work
_MORE = 1.02  # a count, or thread blocks, against the peers'

_CHECK_GPU = (
    "compare this GPU with its peers: power, temperature and throttling (nvidia-smi -q -d PERFORMANCE,CLOCK); if it "
    "stays slower, exchange it or leave it out"
)
_COMPARE_INPUT = "compare what it computes with its peers': sizes, strides and values"
_BALANCE = "balance the work over the ranks: batches of as many tokens, or of similar lengths"
_SHARE = "do this on no rank alone: share it over the ranks, do it less often, or while no other rank waits"
_CHECK_HOST = "see what else runs on its cores: other processes, too few threads, the binding to cores or NUMA nodes"


class Lines(msgspec.Struct, frozen=True, eq=False):
    """The costs of each source line on each rank. The arrays have the shape (rows, ranks), and their values are means
    per step. There is one row for each combination of a source line and a kind of cost.

    Attributes:
        places: The source line of each row. An empty `Where()` if the line is unknown.
        kinds: The kind of cost of each row, such as the time of kernels or of the host's waits.
        time: The time in ns.
        count: The number of kernels, copies or host events.
        blocks: The number of thread blocks of the kernels.
    """

    places: list[Where]
    kinds: list[Cost]
    time: _Reals
    count: _Reals
    blocks: _Reals


def lines_of(job: Job, steps: Sequence[int] | None = None) -> Lines:
    """Adds up what each source line costs on each rank of a job.

    Args:
        job: The job.
        steps: The indices of the steps that count. None: all steps, but without the first if there are several.
    """
    chosen = np.array(list(job.settled if steps is None else steps), dtype=np.int64)
    numbers: dict[tuple[tuple[object, ...], int], int] = {}
    places: list[Where] = []
    kinds: list[Cost] = []
    entries: list[tuple[I64, I64, I64, I64, int]] = []
    for index, rank in enumerate(job.ranks):
        costs = rank.costs
        inside = is_in(costs.step, chosen)
        keys, which = np.unique(costs.place[inside] * len(Cost) + costs.kind[inside], return_inverse=True)
        numbered = []
        for place, kind in zip(*(each.tolist() for each in np.divmod(keys, len(Cost))), strict=True):
            where = rank.summary.places[place] if place >= 0 else Where()
            key = (where.key, kind)
            if key not in numbers:
                numbers[key] = len(places)
                places.append(where)
                kinds.append(Cost(kind))
            numbered.append(numbers[key])
        row = np.array(numbered, dtype=np.int64)[which]
        entries.append((row, costs.time[inside], costs.count[inside], costs.blocks[inside], index))
    shape = (len(places), len(job.ranks))
    time, count, blocks = (np.zeros(shape) for _ in range(3))
    for row, *columns, index in entries:
        for table, column in zip((time, count, blocks), columns, strict=True):
            np.add.at(table[:, index], row, column)
    each = max(len(chosen), 1)
    return Lines(places, kinds, time / each, count / each, blocks / each)


def causes_of(job: Job, index: int, peers: Sequence[int], lines: Lines, late_ns: float) -> tuple[Cause, ...]:
    """Returns up to three reasons why a rank's own work takes longer than that of its peers. The largest is first.

    Args:
        job: The job.
        index: The index of the rank.
        peers: The indices of the ranks to compare with.
        lines: The costs of each source line on each rank.
        late_ns: How much longer the rank's own work takes than that of its peers, in ns per step.
    """
    lines = _by_function(lines, index, peers)
    kinds = np.array(lines.kinds, dtype=np.int64)
    over = lines.time[:, index] - median(lines.time[:, list(peers)], axis=1)
    on_device = np.isin(kinds, (Cost.KERNEL, Cost.COPY))
    device_over = float(over[on_device].sum())
    found: list[Cause] = []
    if device_over >= _NOTABLE * late_ns:
        found += _on_device(lines, index, peers, np.flatnonzero(on_device & (kinds == Cost.KERNEL)), over, late_ns)
    busier = _host_over(job, index, peers) >= _NOTABLE * late_ns
    for row in np.argsort(-over).tolist():
        if on_device[row] or over[row] < _NOTABLE * late_ns or (kinds[row] == Cost.HOST and not busier):
            continue
        found.append(_on_host(lines, row, index, peers, float(over[row])))
    found = [_of_own_waits(cause, late_ns) for cause in _by_line(_without_echoes(found, device_over))]
    found.sort(key=lambda cause: -cause.late_ns)
    rank = job.ranks[index]
    causes = [_with_finding(rank, cause) for cause in found[:_MOST_CAUSES]]
    is_pair = len(peers) == 1 and (job.roles.role == job.roles.role[index]).sum() <= _PAIR
    return tuple(map(_of_one_peer, causes) if is_pair else causes)


def _of_one_peer(cause: Cause) -> Cause:
    """Returns the cause of a rank that has one peer only, and says so."""
    text, fix = cause.text, cause.fix
    for many, one in _SINGULAR.items():
        text, fix = text.replace(many, one), fix.replace(many, one) if fix is not None else None
    return msgspec.structs.replace(cause, text=text, fix=fix)


def _of_own_waits(cause: Cause, late_ns: float) -> Cause:
    """Returns the cause without what a wait only shows of other ranks: the host waits for the device, and the device
    for these in a collective. Waiting makes a rank late by no more than `late_ns`, which it is late by in all."""
    if cause.kind != "wait":
        return cause
    return msgspec.structs.replace(cause, late_ns=min(cause.late_ns, round(late_ns)))


def _host_over(job: Job, index: int, peers: Sequence[int]) -> float:
    """Returns how much longer the host of a rank works than those of its peers, in ns per step. It neither waits nor
    sleeps then, nor waits in a launch for room in a full queue, as the host of a busy device does."""
    shapes, steps = job.shapes, len(job.settled)
    begins = shapes.stretches.until(job.settled.start)
    ranks = [index, *peers]
    host = np.array([shapes.buckets[each].host for each in ranks])
    own = np.maximum(host - job.idle.of(ranks).of_ranks, 0)[:, begins:].sum(axis=1) / max(steps, 1)
    return float(own[0] - median(own[1:]))


def _by_function(lines: Lines, index: int, peers: Sequence[int]) -> Lines:
    """Returns the costs with one row for lines of a function that stand in for one another.

    Ranks may do the same at different lines of a function: the first stage of a pipeline gives its schedule a batch,
    the last a target. If a rank runs lines of a function that not all its peers run, and peers run lines of it that the
    rank does not run, the costs of these lines are added up, by kind. The row has the rank's costliest of these lines.

    Args:
        lines: The costs of each source line on each rank.
        index: The index of the rank.
        peers: The indices of the ranks to compare with.
    """
    ran: dict[tuple[object, ...], _Reals] = {}
    for row, where in enumerate(lines.places):
        ran[where.key] = ran.get(where.key, np.zeros(lines.time.shape[1])) + lines.time[row]
    apart: dict[tuple[str, str, Cost], list[int]] = {}
    for row, (where, kind) in enumerate(zip(lines.places, lines.kinds, strict=True)):
        works = kind in (Cost.KERNEL, Cost.COPY, Cost.HOST)
        if works and where.file and where.function and where.line and not ran[where.key][[index, *peers]].all():
            apart.setdefault((where.file, where.function, kind), []).append(row)
    into = np.arange(len(lines.places))
    for rows in apart.values():
        mine = [row for row in rows if ran[lines.places[row].key][index]]
        if mine and len(mine) < len(rows):
            into[rows] = max(mine, key=lambda row: float(lines.time[row, index]))
    kept, to = np.unique(into, return_inverse=True)

    def added(table: _Reals) -> _Reals:
        sums = np.zeros((len(kept), table.shape[1]))
        np.add.at(sums, to.reshape(-1), table)
        return sums

    places, kinds = [lines.places[row] for row in kept], [lines.kinds[row] for row in kept]
    return Lines(places, kinds, added(lines.time), added(lines.count), added(lines.blocks))


def _without_echoes(causes: list[Cause], device_over: float) -> list[Cause]:
    """Returns the causes without waits for the device that are longer only because the device works longer.

    `device_over` is how much longer the device of the rank works than those of its peers, in ns per step.
    """
    if device_over <= 0:
        return causes
    return [cause for cause in causes if cause.kind != "wait" or _is_oftener(cause) or cause.late_ns > 2 * device_over]


def _is_oftener(cause: Cause) -> bool:
    return cause.count_times is None or cause.count_times > _MORE


def _by_line(causes: list[Cause]) -> list[Cause]:
    """Joins a "wait" cause and a "host" cause at the same source line into one cause, with the sum of their times.

    If the rank waits at this line more often than its peers, the wait makes the host's own work late, too: after a
    wait, the device has nothing to do until the host launches more work. The joined cause then is a wait. Otherwise, it
    is the host's own work.
    """
    joined: list[Cause] = []
    for cause in causes:
        same = [
            each for each in joined if each.where.key == cause.where.key and {each.kind, cause.kind} == {"wait", "host"}
        ]
        if not same:
            joined.append(cause)
            continue
        wait, host = (cause, same[0]) if cause.kind == "wait" else (same[0], cause)
        chosen = wait if _is_oftener(wait) else host
        both = msgspec.structs.replace(chosen, late_ns=wait.late_ns + host.late_ns)
        joined[joined.index(same[0])] = both
    return joined


def _on_host(lines: Lines, row: int, index: int, peers: Sequence[int], over: float) -> Cause:
    kind = lines.kinds[row]
    count, usual = lines.count[row, index], float(median(lines.count[row, list(peers)]))
    times = count / usual if usual else None
    name = {Cost.WAIT: "wait", Cost.LOADING: "data loading", Cost.ASLEEP: "sleep", Cost.HOST: "host"}[kind]
    if times is None:
        text = "its peers do not do this"
    elif times > _MORE:
        text = f"{times:.3g} times as often as its peers"
    else:
        text = f"{lines.time[row, index] / max(float(median(lines.time[row, list(peers)])), 1):.3g} times as long"
    return Cause(
        kind=name,
        where=lines.places[row],
        late_ns=round(over),
        text=text,
        count_times=None if times is None else round(float(times), 4),
        fix=_CHECK_HOST if kind == Cost.HOST and times is not None and times <= _MORE else None,
    )


def _on_device(lines: Lines, index: int, peers: Sequence[int], rows: I64, over: _Reals, late_ns: float) -> list[Cause]:
    """Returns the reasons why a rank's kernels take longer than those of its peers: more work, a lower clock rate, or
    single slow kernels."""
    mine = lines.time[rows, index]
    theirs, counts, blocks = (
        median(table[rows][:, list(peers)], axis=1) for table in (lines.time, lines.count, lines.blocks)
    )
    total = float(over[rows].sum())
    both = (theirs > 0) & (mine > 0)
    factor = np.where(both, mine / np.maximum(theirs, 1e-9), np.nan)
    shared = rows[both]
    if len(shared) >= _LEAST_LINES and theirs[both].sum() > 0:
        weights = theirs[both]
        ratio = float(mine[both].sum() / weights.sum())
        known = blocks[both].sum() > 0 < lines.blocks[rows, index][both].sum()
        grew = _grew_where_late(lines.blocks[rows, index][both], blocks[both], over[shared])
        oftener = _grew(lines.count[rows, index][both], counts[both])
        works_more = known and grew > _MORE * max(oftener, 1)
        off = np.abs(factor[both] - ratio)
        # Longer input leaves some kernels as they are, such as the optimizer's; fewer clocks leave none. Where a trace
        # does not tell the thread blocks, each line that counts must therefore have the factor.
        notable = weights >= _COUNTS * weights.sum()
        spread = float(np.sqrt(np.average(off**2, weights=weights))) if known else float(off[notable].max())
        of_shared = float(over[shared].sum())
        if of_shared > 0.5 * total and spread <= _EVEN * max(ratio - 1, 0) and (oftener <= _MORE or works_more):
            top = Where() if len(lines.places) == 0 else lines.places[int(shared[over[shared].argmax()])]
            if works_more:
                text = f"its kernels have {grew:.3g} times the work"
                kind, fix = "more work", _BALANCE
            else:
                text = f"all its kernels take {ratio:.3g} times as long" + (" for the same work" if known else "")
                kind, fix = "clocks", _CHECK_GPU if known else f"{_COMPARE_INPUT}; if it is the same, {_CHECK_GPU}"
            return [Cause(kind=kind, where=top, late_ns=round(total), text=text, factor=round(ratio, 4), fix=fix)]
    found: list[Cause] = []
    for at in np.argsort(-over[rows]).tolist():
        row = int(rows[at])
        if over[row] < _NOTABLE * late_ns or len(found) == _MOST_CAUSES:
            break
        kernels, usual = lines.count[row, index], counts[at]
        grew = _grew(lines.blocks[row : row + 1, index], blocks[at : at + 1])
        times, fix = kernels / usual if usual else None, _BALANCE
        if times is None:
            kind, text, fix = "more work", "its peers launch nothing there", _SHARE
        elif grew > _MORE * max(times, 1):
            kind, text = "more work", f"its kernels have {grew:.3g} times the work of its peers'"
        elif times > _MORE:
            kind, text = "more work", f"it launches {times:.3g} times as many kernels as its peers"
            if factor[at] > _MORE * times:
                text += f", which take {factor[at]:.3g} times as long"
        else:
            kind, text = "slow kernel", f"its kernels take {factor[at]:.3g} times as long"
            fix = f"{_COMPARE_INPUT}; if it is the same, {_CHECK_GPU}"
            if blocks[at] > 0:
                text += " for the same work"
            else:
                text += " (the trace does not tell whether they have more work)"
        late, count_times = round(float(over[row])), None if times is None else round(float(times), 4)
        where = lines.places[row]
        found.append(Cause(kind=kind, where=where, late_ns=late, text=text, count_times=count_times, fix=fix))
    return found


def _grew(mine: _Reals, theirs: _Reals) -> float:
    return float(mine.sum() / theirs.sum()) if theirs.sum() > 0 else 1.0


def _grew_where_late(mine: _Reals, theirs: _Reals, over: _Reals) -> float:
    """Returns by which factor lines have more thread blocks than on the peers. Lines that cause a third of how much
    longer the rank takes have at least that factor; only those whose blocks are known count. Not all lines that take
    longer have more blocks for longer input: products that sum over it have as many, and so have copies that make room
    for other kernels."""
    known = (mine > 0) & (theirs > 0) & (over > 0)
    if not known.any():
        return 1.0
    factors, weights = mine[known] / theirs[known], over[known]
    order = factors.argsort()
    until = weights[order].cumsum()
    return float(factors[order][until.searchsorted(until[-1] * (1 - _GROWN))])


def _with_finding(rank: Rank, cause: Cause) -> Cause:
    """Returns the cause with the advice of a finding, if the rank's own trace has a finding at the cause's source
    line. A cause that has advice of its own keeps it: the peers do the same there, so what would make the line faster
    for all leaves the ranks as uneven as before."""
    finding = next((each for each in rank.summary.findings if _is_about(each, cause)), None)
    if finding is None or cause.fix is not None:
        return cause
    return msgspec.structs.replace(cause, rule=finding.rule, fix=finding.fix)


def _is_about(finding: Finding, cause: Cause) -> bool:
    if finding.rule == LOADING or cause.kind == "data loading":
        return finding.rule == LOADING and cause.kind == "data loading"
    if finding.rule in DEVICE_WORK or (cause.kind == "wait" and not finding.wait_ns):
        return False
    return explains(finding) and (finding.where.file, finding.where.line) == (cause.where.file, cause.where.line)
