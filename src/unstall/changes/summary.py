"""The comparison in a few sentences: which run is faster, by how much, and where most of the difference comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from unstall.changes.result import Account, Launches, Side, Summary, Time
from unstall.figures import capital, duration

_CALLED = {
    ("busy", "compute"): "kernels with no copy beside them",
    ("busy", "copy"): "copies with no kernel beside them",
    ("busy", "both"): "kernels and copies at once",
    ("busy", "comm"): "collectives with nothing beside them",
    ("idle", "sync"): "idle time after waits",
    ("idle", "launch"): "idle time waiting for launches",
    ("idle", "input"): "idle time waiting for data",
    ("idle", "copy"): "idle time due to blocking copies",
    ("idle", "allocator"): "idle time due to memory allocation by the driver",
    ("idle", "comm"): "idle time due to collectives",
    ("idle", "startup"): "idle time due to first use",
    ("idle", "python"): "idle time while Python ran outside operators",
    ("idle", "event"): "idle time of streams that wait for each other",
    ("idle", "latency"): "idle time before ops that were already queued",
}
_BOUND = {
    "none": "without device work",
    "comm": "communication-bound",
    "mixed": "bound by nothing alone",
    "startup": "mostly set-up",
}
_LEAST_STEPS = 3
_NOTABLE = 0.2  # share of the difference
_TEN = 9.995  # from here on, three digits leave one after the decimal point
_OF_THE_HOST = {("idle", "launch"), ("idle", "python"), ("idle", "sync")}


def summarise(
    a: Side,
    b: Side,
    step: Time | None,
    accounts: Sequence[Account],
    launches: Launches | None,
    *,
    differs: bool,
) -> Summary:
    """Returns the comparison of two runs in a few sentences.

    Args:
        a: The earlier run.
        b: The later run.
        step: The step times; None if they cannot be compared.
        accounts: The parts of a step's time in both runs.
        launches: The launches per step in both runs; None if they are not known.
        differs: Whether something besides the step time differs.
    """
    if step is None:
        return Summary(faster=None, ratio=None, text="These runs cannot be compared.")
    low, high = sorted((step.a, step.b))
    ratio = round(high / low, 3) if low else None
    each = "" if a.steps.found_by == b.steps.found_by == "whole" else " a step"
    if not differs and step.change == 0:
        return Summary(faster=None, ratio=ratio, text=f"No difference: {duration(step.a)}{each} in both.")
    if not step.change or not (step.beyond_noise or _apart(a, b)):
        rest = "" if differs else " Nothing else differs beyond the noise."
        return Summary(faster=None, ratio=ratio, text=_alike(step, "A step" if each else "The run") + rest)
    faster: Literal["a", "b"] = "b" if step.change < 0 else "a"
    sentences = [_faster(a, b, step, each), _where(step, accounts), _graphs(launches, each)]
    if a.bound_by != b.bound_by:
        sentences.append(f"A is {_bound(a.bound_by)}, B {_bound(b.bound_by)}.")
    of_the_host = sum(part.time_ns.change for part in accounts if (part.kind, part.key) in _OF_THE_HOST)
    recorded = not (a.source.simulated or b.source.simulated)
    if recorded and of_the_host / step.change >= _NOTABLE:
        sentences.append("Recording slows the host, so without the recorder they may differ less.")
    return Summary(faster=faster, ratio=ratio, text=" ".join(sentence for sentence in sentences if sentence))


def _apart(a: Side, b: Side) -> bool:
    """Returns whether every step of one run is shorter than every step of the other run.

    Returns False if a run has fewer than three steps. If two runs of the same program have three steps each, all steps
    of A are shorter than all steps of B in 1 of 20 cases, by chance. If a few steps are far longer than the others,
    this check can find a difference that Student's t test does not find.
    """
    enough = min(a.steps.count, b.steps.count) >= _LEAST_STEPS
    return enough and (a.longest_step_ns < b.shortest_step_ns or b.longest_step_ns < a.shortest_step_ns)


def _alike(step: Time, unit: str) -> str:
    if duration(step.a) == duration(step.b):
        return f"{unit} takes {duration(step.a)} in both."
    return (
        f"{unit} takes {duration(step.a)} in A and {duration(step.b)} in B. That may be chance: the steps of one "
        f"run vary so much that only a difference above {duration(step.noise or 0)} would be significant."
    )


def _faster(a: Side, b: Side, step: Time, each: str) -> str:
    ratio = max(step.a, step.b) / max(min(step.a, step.b), 1)
    times = f"{ratio:.2f}x" if ratio < _TEN else f"{ratio:.1f}x"
    certainly = ""
    if step.noise is None:
        certainly = " (one step each, so this may be chance)"
    elif not step.beyond_noise:
        slow, fast = ("A", "B") if step.change < 0 else ("B", "A")
        certainly = f" (steps vary much, but every step of {fast} is shorter than any of {slow})"
    return (
        f"B is {times} {'faster' if step.change < 0 else 'slower'}: "
        f"{duration(step.b)}{each} instead of {duration(step.a)}{certainly}."
    )


def _most(step: Time, accounts: Sequence[Account]) -> Account | None:
    """Of the accounts that changed in the same direction as the step time, returns the one that changed most.

    Returns None if no account changed in this direction.
    """
    sign = 1 if step.change > 0 else -1
    part = max(accounts, key=lambda part: sign * part.time_ns.change, default=None)
    return part if part and sign * part.time_ns.change > 0 else None


def _where(step: Time, accounts: Sequence[Account]) -> str:
    part = _most(step, accounts)
    if part is None:
        return ""
    change, total = abs(part.time_ns.change), abs(step.change)
    called = _CALLED[part.kind, part.key]
    became = f"{duration(part.time_ns.a)} in A, {duration(part.time_ns.b)} in B"
    if change <= total:
        went = "came from" if step.change < 0 else "went to"
        return f"{duration(change)} of the {duration(total)} {went} {called}: {became}."
    fell, grew = ("fell", "grew") if step.change < 0 else ("grew", "fell")
    rest = f"; everything else together {grew} by {duration(change - total)}" if change - total >= total / 100 else ""
    return f"{capital(called)} {fell} by {duration(change)}: {became}{rest}."


def _graphs(launches: Launches | None, each: str) -> str:
    """If only one of the two runs launches CUDA graphs, returns a sentence that says how many launches these graphs
    replace. Otherwise returns ""."""
    if launches is None:
        return ""
    graphs, calls, held = launches.graph_launches, launches.calls, launches.kernels_in_graphs
    if bool(graphs.a) == bool(graphs.b):
        return ""
    with_, without = ("B", "A") if graphs.b else ("A", "B")
    number, inside = (graphs.b, held.b) if graphs.b else (graphs.a, held.a)
    calls_with, calls_without = (calls.b, calls.a) if graphs.b else (calls.a, calls.b)
    if calls_with >= calls_without or not inside:
        return ""
    calls_noun = "launching call" if calls_with == 1 else "launching calls"
    noun = "graph launch" if number == 1 else "graph launches"
    return (
        f"{with_} runs {_number(inside)} kernels{each} by {_number(number)} {noun}: "
        f"{_number(calls_with)} {calls_noun}{each} in all, {_number(calls_without)} in {without}."
    )


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _bound(bound_by: str) -> str:
    return _BOUND.get(bound_by, f"{bound_by}-bound")
