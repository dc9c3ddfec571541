"""Verdicts: sentences that warn how a measured figure could be misread. Each kind of verdict has
one function. It looks only at the `Evidence` of one measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from unstall.measuring.measurement import Verdict
from unstall.measuring.verdicts import of_device, of_inspection, of_times
from unstall.measuring.verdicts.evidence import Evidence

_RULES: tuple[Callable[[Evidence], Iterable[Verdict]], ...] = (
    of_times.bound,
    of_device.sync_inside,
    of_device.copies_inside,
    of_device.escapes,
    of_times.throttled,
    of_times.not_converged,
    of_times.first_call,
    of_times.too_short,
    of_device.allocates,
    of_device.keeps_memory,
    of_inspection.unused,
    of_device.stale_graph,
    of_times.other_threads,
    of_device.cpu_tensor,
    of_device.warm_cache,
)


def verdicts_of(evidence: Evidence) -> tuple[Verdict, ...]:
    """Returns all verdicts that follow from `evidence`, serious ones first."""
    found = [
        *(verdict for rule in _RULES for verdict in rule(evidence)),
        *of_inspection.of_inspection(evidence.inspection, virtual=evidence.virtual),
    ]
    return tuple(sorted(found, key=lambda verdict: not verdict.serious))
