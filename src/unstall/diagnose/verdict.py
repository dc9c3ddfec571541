"""The verdict: a few sentences that say what limits the speed of a run.

If the run can be replayed, the replay predicts how much shorter a step would be if one resource
took no time. The verdict names the resource with the largest gain. Shares of the time do not show
what would help: if a collective fills half of a step, the reason may be that the collective waits
for a late host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unstall.diagnose.devices import one_at_work, waits_for_others
from unstall.diagnose.long_steps import of_long_steps
from unstall.diagnose.run import Run
from unstall.figures import counted, share, size
from unstall.result import IDLE_CAUSES, Accounts, Verdict
from unstall.timeline.columns import HostKind

_NAMES = {
    "device": "Device-bound",
    "launch": "Launch-bound",
    "sync": "Sync-bound",
    "input": "Input-bound",
    "copy": "Copy-bound",
    "allocator": "Allocator-bound",
    "comm": "Communication-bound",
    "startup": "Start-up",
    "python": "Python-bound",
    "event": "Stream-bound",
    "latency": "Latency-bound",
    "mixed": "Mixed",
}
IF_FREE = {
    "host": "if the host took no time",
    "kernels": "if kernels took no time",
    "copies": "if copies took no time",
    "communication": "if collectives took no time",
    "waits": "if the host never waited for the device",
    "input": "if data loading took no time",
    "allocator": "without cudaMalloc and cudaFree",
    "startup": "without one-time set-up (CUDA context, loading and choosing kernels)",
    "sleep": "if the host never slept, nor waited for other processes, connections or files",
}
_BOUND_BY = {
    "kernels": "device",
    "copies": "copy",
    "communication": "comm",
    "waits": "sync",
    "input": "input",
    "allocator": "allocator",
    "startup": "startup",
    "sleep": "python",
}
"""Maps each resource to the value that the function `bound_by` returns for it. The resource "host"
is missing: its value is "launch" or "python".
"""
_OF_DEVICE = ("device", "copy", "comm")
_WORK = ("host", "kernels")  # the others are waste, if they limit a run as much as these
_SATURATED = 0.95
_NOTABLE = 0.05
_NEXT = 0.02  # of the step; what gains less is not worth a word in the verdict
_TIE = 0.03  # of the step
_WHILE = {
    "sync": "because the host waited for it",
    "launch": "waiting for launches",
    "input": "waiting for data",
    "copy": "waiting for copies that block the host",
    "allocator": "waiting for memory from the driver",
    "comm": "waiting for collectives",
    "startup": "during one-time set-up",
    "python": "while the host did other work",
    "event": "waiting for another stream",
    "latency": "between the launch of an operation and its start",
}


@dataclass(frozen=True, slots=True)
class Freed:
    """How much shorter a step would be if one resource took no time, as a replay predicts. A
    resource is what may limit a step, such as the kernels, the waits or the host. All times are in
    ns.

    Attributes:
        step_ns: The step time as it is.
        gains: Maps each resource to how much shorter a step would be.
        error_ns: The error of the replay. A smaller gain cannot be told from 0.
    """

    step_ns: float
    gains: Mapping[str, float]
    error_ns: float

    def best(self) -> list[str]:
        """Returns the resource (such as the kernels or the waits) with the largest gain, and all
        resources with almost the same gain, largest gain first.

        A gain is almost the same if it is smaller by at most 3 % of a step. Resources that gain
        less than 5 % of a step, or less than the replay's error, are left out: they do not limit
        the step. So is sleep beside data loading, which contains it: a loader waits for files or
        processes. The list may be empty.
        """
        least = max(_NOTABLE * self.step_ns, self.error_ns, 1)
        ranked = sorted((name for name in self.gains if self.gains[name] >= least), key=lambda name: -self.gains[name])
        best = [name for name in ranked if self.gains[ranked[0]] - self.gains[name] <= _TIE * self.step_ns]
        return [name for name in best if name != "sleep" or "input" not in best]

    def others(self) -> list[str]:
        """Returns further resources (such as the kernels or the waits) whose gain is worth
        mentioning, largest gain first. Leaves out those that `best` returns.
        """
        best, least = self.best(), max(_NEXT * self.step_ns, self.error_ns, 1)
        ranked = sorted(self.gains, key=lambda name: -self.gains[name])
        return [name for name in ranked if name not in best and self.gains[name] >= least]

    def share(self, name: str) -> str:
        """Returns how much shorter a step would be if the resource `name` took no time, as text: a
        percentage of the step.
        """
        return share(round(self.gains[name]), round(self.step_ns))


def judge(run: Run, freed: Freed | None = None) -> Verdict:
    """Returns the verdict on a run: what limits its speed.

    Args:
        run: The run, with or without the recorder's overhead.
        freed: How much shorter a step would be if one resource (such as the kernels or the waits)
            took no time. The verdict names the resource with the largest gain. If None, the verdict
            names the resource with the largest share of the time.
    """
    if not len(run.timeline.device):
        return _no_device_work(run)
    if not run.ops_inside.any():
        return _nothing("falls into these steps", ".")
    bound = bound_by(run, freed)
    sentences = [_by_share(run, bound) if freed is None else _by_gain(run, freed, bound)]
    sentences.append(_of_shares(run))
    if len(run.by_device) > 1:
        sentences.append(_of_devices(run))
    if uneven := of_long_steps(run):
        sentences.append(uneven)
    unknown = run.accounts.idle_ns.unknown
    if unknown >= _NOTABLE * run.wall:
        lost = share(unknown, run.wall)
        sentences.append(
            f"{lost} of the time cannot be explained: launches, or kernels of graphs, are not in the file."
        )
    if (run.waiting or run.queue_waiting) and bound != "sync":
        sentences.append(_of_waits(run))
    if not run.timeline.meta.sound:
        sentences.append("Part of the run is missing from the file (see integrity): take this with care.")
    gains = None if freed is None else {name: round(gain) for name, gain in freed.gains.items()}
    return Verdict(bound_by=bound, basis="recorded", text=run.in_its_words(" ".join(sentences)), if_free=gains)


def bound_by(run: Run, freed: Freed | None = None) -> str:
    """Returns what limits the speed of a run, as `Verdict.bound_by` has it: the resource (such as
    the kernels, the waits or the host) with the largest gain in `freed`.

    If `freed` is None, returns the resource with the largest share of the time. If several
    resources have almost the same gain, waste (such as waits) is chosen before the work of the host
    and the device. If several resources remain, returns "mixed". If no gain is worth mentioning, but
    one kind of work whose launches are unknown fills the time, returns this kind: a replay does not
    know that the host waits for it.
    """
    shares = _shares(run)
    # The usual latency of a late launch counts for what made it late: if the host were ahead, it would cost nothing.
    for late in ("launch", "python"):
        behind = int(run.gaps.length[run.gaps.behind == IDLE_CAUSES.index(late)].sum())
        shares[late] += behind
        shares["latency"] -= behind
    if freed is None:
        return max(shares, key=lambda name: shares[name])
    best = freed.best()
    if not best:
        if work := _fills(run, shares):
            return work
        rest = max(("latency", "event"), key=lambda name: shares[name])
        return rest if shares[rest] >= _NOTABLE * run.wall else "mixed"
    named = [name for name in best if name not in _WORK] or best
    if len(named) > 1:
        return "mixed"
    if named == ["host"]:
        return "python" if shares["python"] - _asleep(run) > shares["launch"] else "launch"
    return _BOUND_BY[named[0]]


def _by_gain(run: Run, freed: Freed, bound: str) -> str:
    """Returns the first sentences of the verdict: which resource would shorten a step most if it took no time.

    The resources with the next largest gains follow.
    """
    best, others = freed.best(), freed.others()
    step = run.steps.unit
    name = "Held up" if best == ["sleep"] else _NAMES[bound]
    if not best and bound in _OF_DEVICE and _fills(run, _shares(run)) == bound:
        return (
            f"{_by_share(run, bound)} What less of it would gain cannot be told, as its launches are not in the file."
        )
    if not best:
        most = max(freed.gains, key=lambda name: freed.gains[name])
        if freed.gains[most] < max(freed.error_ns, 1):
            return f"{name}: no resource by itself limits {step}, as far as the replay can tell."
        return f"{name}: no resource by itself limits {step}. The most is gained {IF_FREE[most]}: {freed.share(most)}."
    # The verdict's own resource comes first: waste is named before work that gains about as much.
    ways = [
        f"{freed.share(each)} {IF_FREE[each]}" for each in sorted(best, key=lambda way: _BOUND_BY.get(way) != bound)
    ]
    said = f"{name}: {step} would be shorter by {' or by '.join(ways)}."
    if others:
        return f"{said} Next: {', '.join(f'{freed.share(each)} {IF_FREE[each]}' for each in others[:2])}."
    least = max(_NEXT * freed.step_ns, freed.error_ns)
    small = share(round(least), round(freed.step_ns))
    return f"{said} Speeding up anything else gains less than {small}."


def _fills(run: Run, shares: Mapping[str, int]) -> str | None:
    """Returns the kind of the device's work that takes nearly all of the time by itself, if the file lacks the calls
    that launched most ops, or None."""
    most = max(_OF_DEVICE, key=lambda name: shares[name])
    unlaunched = np.count_nonzero(run.timeline.device.launch[run.ops_inside] < 0)
    fills = shares[most] >= _SATURATED * run.wall and 2 * unlaunched > np.count_nonzero(run.ops_inside)
    return most if fills else None


def _by_share(run: Run, bound: str) -> str:
    """Returns the first sentence of the verdict for a run that is not replayed."""
    name = "Held up" if bound == "python" and 2 * _asleep(run) >= _shares(run)[bound] else _NAMES[bound]
    part = share(_shares(run)[bound], _wall_without_set_up(run))
    what = {
        "device": "in computing",
        "copy": "in copies",
        "comm": "in collectives with nothing beside them",
        "startup": "in one-time set-up",
    }.get(bound) or f"in idling, {_WHILE[bound]}"
    return f"{name}: the device spends {part} of the time {what}."


def _of_shares(run: Run) -> str:
    """Returns a sentence that says how busy the device is, with which work, and for what the device mostly waits."""
    wall, busy = _wall_without_set_up(run), run.accounts.busy_ns
    total = _busy(run.accounts)
    kinds = (
        ("computing", busy.compute),
        ("copying", busy.copy),
        ("in collectives", busy.comm),
        ("computing and copying at once", busy.both),
    )
    named = [f"{share(ns, wall)} {kind}" for kind, ns in kinds if ns >= _NOTABLE * wall]
    kinds_text = f" ({', '.join(named)})" if busy.copy + busy.comm + busy.both >= _NOTABLE * wall else ""
    device = "The device is" if len(run.by_device) == 1 else "One device or another is"
    set_up = wall != run.wall
    without = f", not counting {share(run.wall - wall, run.wall)} in which the recorder set itself up" if set_up else ""
    said = f"{device} busy for {share(total, wall)} of the time{kinds_text}"
    if total >= _SATURATED * wall:
        return f"{said}, and hardly ever idle{without}."
    return f"{said}, and idle for {share(wall - total, wall)}{_mostly(run)}{without}."


def _of_devices(run: Run) -> str:
    one_by_one = ", ".join(share(_busy(own), own.wall_ns) for own, _ in run.by_device)
    said = f"Device by device, they are busy {one_by_one} of the time."
    turns = sum(int(part.length.sum()) for part in waits_for_others(run))
    if turns < _NOTABLE * run.wall * len(run.by_device):
        return said
    alone = share(one_at_work(run), run.wall)
    return f"{said} They take turns: for {alone} of the time only one of them works."


def _no_device_work(run: Run) -> Verdict:
    recorder = run.timeline.meta.recorder
    if recorder == "virtual":
        most = int(run.timeline.memory.allocated.max(initial=0))
        took = (
            "The program launched nothing, so no time can be explained: it only allocated up to "
            f"{size(most)} of GPU memory at a time."
        )
        if most:
            return Verdict(bound_by="none", basis="recorded", text=took)
        end = ": did this process move anything to CUDA? Child processes are left out."
        return _nothing("was put on the virtual GPU", end)
    launches = int(np.isin(run.timeline.host.kind, (HostKind.LAUNCH, HostKind.GRAPH_LAUNCH)).sum())
    if launches:
        found = counted(launches, "launch")
        return _nothing("is in the file", f", but {found}: a GPU was used, and the file has lost what it did.")
    asked = "" if recorder is not None else ", and was ProfilerActivity.CUDA among the activities"
    return _nothing("was recorded", f": was a GPU used{asked}?")


def _nothing(what: str, end: str) -> Verdict:
    text = f"No device work {what}, so there is nothing to explain{end}"
    return Verdict(bound_by="none", basis="recorded", text=text)


def _shares(run: Run) -> dict[str, int]:
    """Returns the time of each candidate for `bound_by`, in ns.

    Leaves out the recorder's set-up and the idle time of unknown cause.
    """
    shares = parts(run.accounts)
    shares["startup"] -= _recorder_share(run)
    shares["unknown"] = 0
    return shares


def _idle(run: Run) -> dict[str, int]:
    """Returns the idle time by cause, in ns. Leaves out the recorder's set-up and the idle time of unknown cause."""
    busy, shares = run.accounts.busy_ns, _shares(run)
    return {cause: shares[cause] for cause in IDLE_CAUSES} | {
        "copy": shares["copy"] - busy.copy - (busy.both if _copies_longest(run.accounts) else 0),
        "comm": shares["comm"] - busy.comm,
    }


def _mostly(run: Run) -> str:
    """Returns a text that says what causes most of the idle time, such as ", mostly waiting for launches (12.8 % of the
    time)". Returns "" if most of it is of unknown cause."""
    idle, wall = _idle(run), _wall_without_set_up(run)
    cause = max(idle, key=lambda cause: idle[cause])
    if idle[cause] < run.accounts.idle_ns.unknown:
        return ""
    how = "mostly" if 2 * idle[cause] > wall - _busy(run.accounts) else "the largest part of it"
    return f", {how} {_WHILE[cause]} ({share(idle[cause], wall)} of the time)"


def _set_up_ns(run: Run) -> int:
    """Returns the idle time due to the recorder's set-up, in ns, or 0 if this time is too short to mention."""
    recorder = _recorder_share(run)
    return recorder if recorder >= _NOTABLE * run.wall else 0


def _wall_without_set_up(run: Run) -> int:
    return run.wall - _set_up_ns(run)


def _asleep(run: Run) -> int:
    """Returns for how long the host slept during idle time that has the cause "python", in ns."""
    gaps, chosen = run.gaps, run.gaps_by("python")
    return int(run.activity.asleep.covered(gaps.start[chosen], gaps.end[chosen]).sum())


def _of_waits(run: Run) -> str:
    """Returns a sentence that says how long the host waits for the device, and how long the device then idles."""
    wall, idle, queued = run.wall, run.accounts.idle_ns, run.queue_waiting
    cost = idle.sync + idle.copy
    total = share(run.waiting + queued, wall)
    of_queue = "" if run.negligible(queued) else f", {share(queued, wall)} in launches, as the launch queue is full"
    left = (
        f"{';' if of_queue else ','} {'this' if of_queue else 'which'} costs the device next to nothing."
        if run.negligible(cost)
        else f". These waits make the device idle for {share(cost, wall)} of the time."
    )
    return f"The host waits for the device for {total} of the time{of_queue}{left}"


def _recorder_share(run: Run) -> int:
    """Returns the idle time in which the recorder set itself up, in ns.

    This idle time slows the recorded run only. It does not occur without the recorder.
    """
    gaps = run.gaps
    chosen = run.gaps_by("startup")
    return int(run.activity.recorder.covered(gaps.start[chosen], gaps.end[chosen]).sum())


def _busy(accounts: Accounts) -> int:
    busy = accounts.busy_ns
    return busy.compute + busy.copy + busy.both + busy.comm


def parts(accounts: Accounts) -> dict[str, int]:
    """Returns the time, in ns, of each resource that may limit the speed of a run, such as the
    device or the waits. The keys are values of `Verdict.bound_by`.

    Time in which kernels and copies overlap counts for the one of the two that takes longer in
    total.
    """
    busy, idle = accounts.busy_ns, accounts.idle_ns
    shares: dict[str, int] = {"device": busy.compute}
    shares |= {cause: int(getattr(idle, cause)) for cause in IDLE_CAUSES}
    shares["copy"] += busy.copy
    shares["comm"] += busy.comm
    shares["copy" if _copies_longest(accounts) else "device"] += busy.both
    return shares


def _copies_longest(accounts: Accounts) -> bool:
    return accounts.busy_ns.copy > accounts.busy_ns.compute
