"""One sentence: what bounds this run, and how far the data bear that out."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.devices import one_at_work, waits_for_others
from unstall.diagnose.long_steps import of_long_steps
from unstall.diagnose.run import Run
from unstall.figures import share
from unstall.result import IDLE_CAUSES, Accounts, Verdict
from unstall.timeline.columns import Bool

_SAYS = {
    "device": "Device-bound: the device computes {share} of the time.",
    "launch": "Launch-bound: {share} of the time the device waits for the host to dispatch the next operator.",
    "sync": "Sync-bound: {share} of the time the device idles because the host had waited and drained its queue.",
    "input": "Input-bound: {share} of the time the device waits for data loading.",
    "copy": "Copy-bound: {share} of the time goes to copies.",
    "allocator": "Allocator-bound: {share} of the time the device waits for cudaMalloc, cudaFree or empty_cache.",
    "comm": "Communication-bound: {share} of the time goes to collectives with no computation beside them.",
    "startup": "Start-up: {share} of the time goes to first use (context, modules, kernel choice). Record later steps "
    "to judge the steady state.",
    "python": "Python-bound: {share} of the time the device waits while the host dispatches nothing for long.",
    "event": "Stream-bound: {share} of the time streams wait for each other while the device has nothing to do.",
    "latency": "Latency-bound: {share} of the time is short gaps between operations that were already queued.",
}
_ASLEEP = (
    "Held up: {share} of the time the device waits while the host dispatches nothing for long, as it sleeps, or waits "
    "for another process, a connection or a file."
)
_SATURATED = 0.95
_NOTABLE = 0.05
_PARTLY = 0.2  # idle for so much of the time, a device is not what alone bounds the run
_WHILE = {
    "sync": "after a wait had drained its queue",
    "launch": "waiting for launches, which the host dispatches too slowly",
    "input": "waiting for data",
    "copy": "waiting for copies that block the host",
    "allocator": "waiting for memory from the driver",
    "comm": "waiting for collectives",
    "startup": "during first use",
    "python": "while the host dispatched nothing for long",
    "event": "waiting for another stream",
    "latency": "in short gaps between operations that were already queued",
}


def judge(run: Run) -> Verdict:
    """The largest of the device's own time and of each cause; `copy` and `comm` count busy and idle time."""
    if not len(run.timeline.device):
        recorder = run.timeline.meta.recorder
        if recorder == "virtual":
            return _nothing("was put on the virtual GPU", ": did the program move anything to CUDA?")
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
        sentences.append(f"Taken one by one, its devices are busy {one_by_one}.")
        turns = sum(int(part.length.sum()) for part in waits_for_others(run))
        if turns >= _NOTABLE * accounts.wall_ns * len(run.by_device):
            alone = share(one_at_work(run), accounts.wall_ns)
            sentences.append(f"They take turns: for {alone} of the time one alone is at work.")
    else:
        sentences.append(_rest(run, bound))
    if uneven := of_long_steps(run):
        sentences.append(uneven)
    unknown = _unknown_share(run)
    if sum(unknown.values()) >= _NOTABLE * accounts.wall_ns:
        lost = share(sum(unknown.values()), accounts.wall_ns)
        sentences.append(f"For {lost} of the time nothing can be said: the launches that ended it are not in the file.")
    if run.waiting and bound != "sync":
        sentences.append(_of_waits(run))
    if not run.timeline.meta.sound:
        sentences.append("Part of the run is missing from the file (see integrity): take this with care.")
    return Verdict(bound_by=bound, basis="recorded", text=" ".join(sentences))


def bound_by(run: Run) -> str:
    """What most of the time goes to, of what is known of the program; the recorder's own start is none of it."""
    shares = _shares(run)
    return max(shares, key=lambda name: shares[name])


def _shares(run: Run) -> dict[str, int]:
    shares = parts(run.accounts)
    shares["startup"] -= _recorder_share(run)
    for cause, length in _unknown_share(run).items():
        shares[cause] -= length
    return shares


def _idle(run: Run) -> dict[str, int]:
    """ns of idle time by cause, of what is known of the program."""
    busy, shares = run.accounts.busy_ns, _shares(run)
    return {cause: shares[cause] for cause in IDLE_CAUSES} | {
        "copy": shares["copy"] - busy.copy - (busy.both if _copies_longest(run.accounts) else 0),
        "comm": shares["comm"] - busy.comm,
    }


def _says(run: Run, bound: str) -> str:
    """The first sentence: what bounds the run, and for how much of the time."""
    accounts, recorder = run.accounts, _recorder_share(run)
    wall, length = accounts.wall_ns, _shares(run)[bound]
    if bound == "device" and recorder >= _NOTABLE * wall:
        says = (
            f"Device-bound, but for {share(recorder, wall)} of the time in which the recorder set itself up: the "
            f"device computes {share(length, wall - recorder)} of the rest."
        )
    elif bound == "device" and wall - _busy(accounts) >= _PARTLY * wall:
        says = f"Device-bound more than anything else: the device computes {share(length, wall)} of the time."
    elif bound == "python" and 2 * _asleep(run) >= length:
        says = _ASLEEP.format(share=share(length, wall))
    else:
        says = _SAYS[bound].format(share=share(length, wall))
    return says if len(run.by_device) == 1 else says.replace("the device", "one device or another")


def _asleep(run: Run) -> int:
    """ns of the time that "python" stands for in which the host slept, of what is known of the program."""
    gaps, chosen = run.gaps, run.gaps_by("python")
    chosen = chosen[~_unknown(run)[chosen]]
    return int(run.activity.asleep.covered(gaps.start[chosen], gaps.end[chosen]).sum())


def _of_waits(run: Run) -> str:
    """How long the host waits for the device, and what that leaves it idle for."""
    wall, idle = run.wall, run.accounts.idle_ns
    cost = idle.sync + idle.copy
    left = (
        "cost the device next to nothing" if run.negligible(cost) else f"leave the device idle for {share(cost, wall)}"
    )
    return f"Waits for the device take {share(run.waiting, wall)} of the host's time and {left}."


def _nothing(what: str, end: str) -> Verdict:
    text = f"No device work {what}, so there is nothing to explain{end}"
    return Verdict(bound_by="none", basis="recorded", text=text)


def _rest(run: Run, bound: str) -> str:
    """How busy the device is, and what the rest of the time goes to."""
    accounts, busy, total = run.accounts, run.accounts.busy_ns, _busy(run.accounts)
    if bound != "device":
        beside = bound == "copy" and busy.both >= _NOTABLE * accounts.wall_ns
        more = f", and for {share(busy.both, accounts.wall_ns)} it computes beside a copy" if beside else ""
        return f"The device is busy {share(total, accounts.wall_ns)} of the time{more}."
    recorder = _recorder_share(run)
    wall = accounts.wall_ns - (recorder if recorder >= _NOTABLE * accounts.wall_ns else 0)
    if total < _SATURATED * wall:
        idle = _idle(run)
        most = max(idle, key=lambda cause: idle[cause])
        part = "most of it" if 2 * idle[most] > wall - total else "the largest part"
        return f"It idles {share(wall - total, wall)}, {part} {_WHILE[most]} ({share(idle[most], wall)})."
    if busy.copy + busy.comm >= _NOTABLE * wall:
        alone = share(busy.copy + busy.comm, wall)
        return f"It is hardly ever idle: {alone} go to copies or collectives with nothing beside them."
    return "It is hardly ever idle: only faster or fewer kernels help."


def _recorder_share(run: Run) -> int:
    """ns of start-up that are the recorder's: they bound the recorded run, but not the program."""
    gaps = run.gaps
    chosen = run.gaps_by("startup")
    return int(run.activity.recorder.covered(gaps.start[chosen], gaps.end[chosen]).sum())


def _unknown_share(run: Run) -> dict[str, int]:
    """ns of idle time, by the cause it was given, before ops whose launch is not in the file."""
    gaps, ended = run.gaps, np.flatnonzero(_unknown(run))
    return {cause: int(gaps.length[ended][gaps.cause[ended] == code].sum()) for code, cause in enumerate(IDLE_CAUSES)}


def _unknown(run: Run) -> Bool:
    """Which idle intervals end with an op whose launch is not in the file."""
    op = run.gaps.op
    unknown: Bool = (op >= 0) & (run.timeline.device.launch[np.maximum(op, 0)] < 0)
    return unknown


def _busy(accounts: Accounts) -> int:
    busy = accounts.busy_ns
    return busy.compute + busy.copy + busy.both + busy.comm


def parts(accounts: Accounts) -> dict[str, int]:
    """ns that each candidate accounts for. What computes beside a copy counts for the one that takes longer in all."""
    busy, idle = accounts.busy_ns, accounts.idle_ns
    shares: dict[str, int] = {"device": busy.compute}
    shares |= {cause: int(getattr(idle, cause)) for cause in IDLE_CAUSES}
    shares["copy"] += busy.copy
    shares["comm"] += busy.comm
    shares["copy" if _copies_longest(accounts) else "device"] += busy.both
    return shares


def _copies_longest(accounts: Accounts) -> bool:
    return accounts.busy_ns.copy > accounts.busy_ns.compute
