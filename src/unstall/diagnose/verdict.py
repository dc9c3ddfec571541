"""One sentence: what bounds this run, and how far the data bear that out."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import share
from unstall.result import IDLE_CAUSES, Accounts, Verdict

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
    "python": "Python-bound: {share} of the time the device waits while the host works outside any operator.",
    "event": "Stream-bound: {share} of the time streams wait for each other while the device has nothing to do.",
    "latency": "Latency-bound: {share} of the time is short gaps between operations that were already queued.",
}
_SATURATED = 0.95
_NOTABLE = 0.05
_WANT = {
    "sync": "work after a wait had drained its queue",
    "launch": "launches, which the host dispatches too slowly",
    "input": "data",
    "copy": "copies that block the host",
    "allocator": "memory from the driver",
    "comm": "collectives",
    "startup": "first use: modules, context, kernel choice",
    "python": "the host, at work outside any operator",
    "event": "another stream",
    "latency": "the next op to begin, already queued",
}
_HOST_BOUND = ("launch", "python", "sync")


def judge(run: Run) -> Verdict:
    """The largest of the device's own time and of each cause; `copy` and `comm` count busy and idle time."""
    if not len(run.timeline.device):
        return _nothing("was recorded", ": was a GPU used, and was ProfilerActivity.CUDA among the activities?")
    if not run.ops_inside.any():
        return _nothing("falls into these steps", ".")
    accounts = run.accounts
    shares = parts(accounts)
    recorder = _recorder_share(run)
    unknown = _unknown_share(run)
    shares["startup"] -= recorder
    for cause, length in unknown.items():
        shares[cause] -= length
    bound_by = max(shares, key=lambda name: shares[name])
    says = _SAYS[bound_by].format(share=share(shares[bound_by], accounts.wall_ns))
    if len(run.by_device) == 1:
        sentences = [says, _rest(accounts, shares, recorder)]
    else:
        sentences = [says.replace("the device", "one device or another")]
        one_by_one = ", ".join(share(_busy(own), own.wall_ns) for own, _ in run.by_device)
        sentences.append(f"Taken one by one, its devices are busy {one_by_one}.")
    if sum(unknown.values()) >= _NOTABLE * accounts.wall_ns:
        lost = share(sum(unknown.values()), accounts.wall_ns)
        sentences.append(f"For {lost} of the time nothing can be said: the launches that ended it are not in the file.")
    waited = run.waiting
    if waited and bound_by != "sync":
        sentences.append(
            f"Waits for the device take {share(waited, accounts.wall_ns)} of the host's time "
            f"and leave the device idle for {share(accounts.idle_ns.sync, accounts.wall_ns)}."
        )
    if bound_by in _HOST_BOUND:
        sentences.append("Recording slows the host, so the unrecorded program is less so.")
    if not run.timeline.meta.sound:
        sentences.append("Part of the run is missing from the file (see integrity): take this with care.")
    return Verdict(bound_by=bound_by, basis="recorded", text=" ".join(sentences))


def _nothing(what: str, end: str) -> Verdict:
    text = f"No device work {what}, so there is nothing to explain{end}"
    return Verdict(bound_by="none", basis="recorded", text=text)


def _rest(accounts: Accounts, shares: dict[str, int], recorder: int) -> str:
    """How busy the device is, and what the rest of the time goes to."""
    wall, busy, total = accounts.wall_ns, accounts.busy_ns, _busy(accounts)
    if max(shares, key=lambda name: shares[name]) != "device":
        return f"It is busy {share(total, wall)}."
    if total < _SATURATED * wall:
        idle = {cause: shares[cause] for cause in IDLE_CAUSES} | {
            "copy": accounts.idle_ns.copy,
            "comm": accounts.idle_ns.comm,
        }
        most = max(idle, key=lambda cause: idle[cause])
        if recorder > idle[most]:
            return f"It idles {share(wall - total, wall)}, most of it while the recorder set itself up."
        return (
            f"It idles {share(wall - total, wall)}, most of it for want of {_WANT[most]} ({share(idle[most], wall)})."
        )
    if busy.copy + busy.comm >= _NOTABLE * wall:
        beside = share(busy.copy + busy.comm, wall)
        return f"It is hardly ever idle: {beside} go to copies or collectives with nothing beside them."
    return "It is hardly ever idle: only faster or fewer kernels help."


def _recorder_share(run: Run) -> int:
    """ns of start-up that are the recorder's: they bound the recorded run, but not the program."""
    gaps = run.gaps
    chosen = run.gaps_by("startup")
    return int(run.activity.recorder.covered(gaps.start[chosen], gaps.end[chosen]).sum())


def _unknown_share(run: Run) -> dict[str, int]:
    """ns of idle time, by the cause it was given, before ops whose launch is not in the file."""
    gaps = run.gaps
    ended = np.flatnonzero((gaps.op >= 0) & (run.timeline.device.launch[np.maximum(gaps.op, 0)] < 0))
    return {cause: int(gaps.length[ended][gaps.cause[ended] == code].sum()) for code, cause in enumerate(IDLE_CAUSES)}


def _busy(accounts: Accounts) -> int:
    busy = accounts.busy_ns
    return busy.compute + busy.copy + busy.both + busy.comm


def parts(accounts: Accounts) -> dict[str, int]:
    """ns that each candidate accounts for."""
    busy, idle = accounts.busy_ns, accounts.idle_ns
    shares = {"device": busy.compute + busy.both}
    shares |= {cause: int(getattr(idle, cause)) for cause in IDLE_CAUSES}
    shares["copy"] += busy.copy
    shares["comm"] += busy.comm
    return shares
