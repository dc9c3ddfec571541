"""The verdict: what bounds this run, in a few sentences."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.devices import one_at_work, waits_for_others
from unstall.diagnose.long_steps import of_long_steps
from unstall.diagnose.run import Run
from unstall.figures import counted, share
from unstall.result import IDLE_CAUSES, Accounts, Verdict
from unstall.timeline.columns import HostKind

_SAYS = {
    "device": "Device-bound: the device computes {share} of the time.",
    "launch": "Launch-bound: {share} of the time the device waits for the host to dispatch the next operator.",
    "sync": "Sync-bound: {share} of the time the device idles because the host waited for it and queued nothing.",
    "input": "Input-bound: {share} of the time the device waits for data loading.",
    "copy": "Copy-bound: {share} of the time goes to copies.",
    "allocator": "Allocator-bound: {share} of the time the device waits for cudaMalloc, cudaFree or empty_cache.",
    "comm": "Communication-bound: {share} of the time goes to collectives while nothing computes.",
    "startup": "Start-up: {share} of the time goes to one-time set-up (CUDA context, loading and choosing kernels). "
    "Record later steps to see the steady state.",
    "python": "Python-bound: {share} of the time the device waits while the host does other work and launches nothing.",
    "event": "Stream-bound: {share} of the time the device idles because streams wait for each other.",
    "latency": "Latency-bound: {share} of the time passes between the launch of an operation and its start.",
}
_ASLEEP = (
    "Held up: {share} of the time the device waits while the host sleeps, or waits for another process, a connection "
    "or a file."
)
_SATURATED = 0.95
_NOTABLE = 0.05
_MIXED = 0.2  # idle for more than this, the device is not the only limit
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


def judge(run: Run) -> Verdict:
    """Returns the verdict: the device's own time or the cause with the most time; `copy` and `comm` count busy and idle
    time."""
    if not len(run.timeline.device):
        recorder = run.timeline.meta.recorder
        if recorder == "virtual":
            return _nothing("was put on the virtual GPU", ": did the program move anything to CUDA?")
        launches = int(np.isin(run.timeline.host.kind, (HostKind.LAUNCH, HostKind.GRAPH_LAUNCH)).sum())
        if launches:
            return _nothing(
                "is in the file",
                f", but {counted(launches, 'launch')}: a GPU was used, and the file has lost what it did.",
            )
        own = recorder is not None
        asked = "" if own else ", and was ProfilerActivity.CUDA among the activities"
        return _nothing("was recorded", f": was a GPU used{asked}?")
    if not run.ops_inside.any():
        return _nothing("falls into these steps", ".")
    accounts = run.accounts
    bound = bound_by(run)
    sentences = [_says(run, bound)]
    if len(run.by_device) > 1:
        one_by_one = ", ".join(share(_busy(own), own.wall_ns) for own, _ in run.by_device)
        sentences.append(f"Device by device, they are busy {one_by_one} of the time.")
        turns = sum(int(part.length.sum()) for part in waits_for_others(run))
        if turns >= _NOTABLE * accounts.wall_ns * len(run.by_device):
            alone = share(one_at_work(run), accounts.wall_ns)
            sentences.append(f"They take turns: for {alone} of the time only one of them works.")
    elif rest := _rest(run, bound):
        sentences.append(rest)
    if uneven := of_long_steps(run):
        sentences.append(uneven)
    unknown = accounts.idle_ns.unknown
    if unknown >= _NOTABLE * accounts.wall_ns:
        lost = share(unknown, accounts.wall_ns)
        sentences.append(
            f"{lost} of the time cannot be explained: the launches that ended it, or the kernels of graphs, are not in "
            "the file."
        )
    if run.waiting and bound != "sync":
        sentences.append(_of_waits(run))
    if not run.timeline.meta.sound:
        sentences.append("Part of the run is missing from the file (see integrity): take this with care.")
    return Verdict(bound_by=bound, basis="recorded", text=run.in_its_words(" ".join(sentences)))


def bound_by(run: Run) -> str:
    """Returns the cause with the most time. The recorder's set-up and idle time of unknown cause do not count.

    The usual latency of a late launch counts for what made it late: if the host were ahead, it would cost nothing."""
    shares = _shares(run)
    for late in ("launch", "python"):
        behind = int(run.gaps.length[run.gaps.behind == IDLE_CAUSES.index(late)].sum())
        shares[late] += behind
        shares["latency"] -= behind
    return max(shares, key=lambda name: shares[name])


def _shares(run: Run) -> dict[str, int]:
    shares = parts(run.accounts)
    shares["startup"] -= _recorder_share(run)
    shares["unknown"] = 0
    return shares


def _idle(run: Run) -> dict[str, int]:
    """ns of idle time by cause, without the recorder's set-up and idle time of unknown cause."""
    busy, shares = run.accounts.busy_ns, _shares(run)
    return {cause: shares[cause] for cause in IDLE_CAUSES} | {
        "copy": shares["copy"] - busy.copy - (busy.both if _copies_longest(run.accounts) else 0),
        "comm": shares["comm"] - busy.comm,
    }


def _says(run: Run, bound: str) -> str:
    """The first sentence: what bounds the run, and for how much of the time."""
    wall, length = run.accounts.wall_ns, _shares(run)[bound]
    if bound == "device":
        says = _says_device(run, length)
    elif bound == "python" and 2 * _asleep(run) >= length:
        says = _ASLEEP.format(share=share(length, wall))
    else:
        says = _SAYS[bound].format(share=share(length, wall))
    return says if len(run.by_device) == 1 else says.replace("the device", "one device or another")


def _says_device(run: Run, computes_ns: int) -> str:
    """The first sentence if the device's own time is the largest part; it is not alone if the device idles a lot."""
    set_up, wall = _set_up_ns(run), _wall_without_set_up(run)
    without = f", not counting {share(set_up, run.wall)} in which the recorder set itself up" if set_up else ""
    if not _is_mixed(run):
        return f"Device-bound: the device computes {share(computes_ns, wall)} of the time{without}."
    idles = f"idles {share(wall - _busy(run.accounts), wall)}, {_mostly(run)}{without}."
    return f"Mixed: the device computes {share(computes_ns, wall)} of the time and {idles}"


def _is_mixed(run: Run) -> bool:
    wall = _wall_without_set_up(run)
    return wall - _busy(run.accounts) >= _MIXED * wall


def _mostly(run: Run) -> str:
    """What the largest part of the idle time is spent on: "mostly waiting for launches (12.8 %)"."""
    idle, wall = _idle(run), _wall_without_set_up(run)
    cause = max(idle, key=lambda cause: idle[cause])
    how = "mostly" if 2 * idle[cause] > wall - _busy(run.accounts) else "the largest part of it"
    return f"{how} {_WHILE[cause]} ({share(idle[cause], wall)})"


def _set_up_ns(run: Run) -> int:
    """ns in which the recorder set itself up; 0 if they are too few to mention."""
    recorder = _recorder_share(run)
    return recorder if recorder >= _NOTABLE * run.wall else 0


def _wall_without_set_up(run: Run) -> int:
    return run.wall - _set_up_ns(run)


def _asleep(run: Run) -> int:
    """ns of the idle time of cause "python" in which the host slept."""
    gaps, chosen = run.gaps, run.gaps_by("python")
    return int(run.activity.asleep.covered(gaps.start[chosen], gaps.end[chosen]).sum())


def _of_waits(run: Run) -> str:
    """Returns how long the host waits for the device, and how much of that the device idles."""
    wall, idle = run.wall, run.accounts.idle_ns
    cost = idle.sync + idle.copy
    left = (
        "cost the device next to nothing" if run.negligible(cost) else f"leave the device idle for {share(cost, wall)}"
    )
    return f"Waits for the device take {share(run.waiting, wall)} of the host's time and {left}."


def _nothing(what: str, end: str) -> Verdict:
    text = f"No device work {what}, so there is nothing to explain{end}"
    return Verdict(bound_by="none", basis="recorded", text=text)


def _rest(run: Run, bound: str) -> str | None:
    """Returns how busy the device is and where the rest of the time goes; None if the first sentence has said that."""
    accounts, busy, total = run.accounts, run.accounts.busy_ns, _busy(run.accounts)
    if bound != "device":
        beside = bound == "copy" and busy.both >= _NOTABLE * accounts.wall_ns
        more = f", and for {share(busy.both, accounts.wall_ns)} it computes during a copy" if beside else ""
        return f"The device is busy {share(total, accounts.wall_ns)} of the time{more}."
    if _is_mixed(run):
        return None
    wall = _wall_without_set_up(run)
    if total < _SATURATED * wall:
        return f"It idles {share(wall - total, wall)}, {_mostly(run)}."
    if busy.copy + busy.comm >= _NOTABLE * wall:
        alone = share(busy.copy + busy.comm, wall)
        return f"It is hardly ever idle; {alone} of the time goes to copies or collectives while nothing computes."
    return "It is hardly ever idle: only faster or fewer kernels help."


def _recorder_share(run: Run) -> int:
    """Returns ns of idle time in which the recorder set itself up. It limits the recorded run but not the program."""
    gaps = run.gaps
    chosen = run.gaps_by("startup")
    return int(run.activity.recorder.covered(gaps.start[chosen], gaps.end[chosen]).sum())


def _busy(accounts: Accounts) -> int:
    busy = accounts.busy_ns
    return busy.compute + busy.copy + busy.both + busy.comm


def parts(accounts: Accounts) -> dict[str, int]:
    """Returns ns by candidate for `bound_by`. Time with both a kernel and a copy counts for the one that takes longer
    in all."""
    busy, idle = accounts.busy_ns, accounts.idle_ns
    shares: dict[str, int] = {"device": busy.compute}
    shares |= {cause: int(getattr(idle, cause)) for cause in IDLE_CAUSES}
    shares["copy"] += busy.copy
    shares["comm"] += busy.comm
    shares["copy" if _copies_longest(accounts) else "device"] += busy.both
    return shares


def _copies_longest(accounts: Accounts) -> bool:
    return accounts.busy_ns.copy > accounts.busy_ns.compute
