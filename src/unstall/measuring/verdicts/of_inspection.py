"""Verdicts on what one call of the measured function does: what it changes, what it returns, and
what work still goes on after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from unstall.measuring.calls.inspection import Inspection
from unstall.measuring.measurement import Verdict
from unstall.measuring.verdicts.evidence import Evidence
from unstall.measuring.wording import names_of


def of_inspection(seen: Inspection, *, virtual: bool = False) -> list[Verdict]:
    """Returns the verdicts that follow from the inspection of one call of the measured function.
    `virtual` says whether times come from the model of the virtual GPU.
    """
    rules = (*_RULES, values_of_model if virtual else values)
    return [verdict for rule in rules for verdict in rule(seen)]


def works_later(seen: Inspection) -> Iterable[Verdict]:
    if seen.later:
        yield Verdict("works later", f"{seen.later}: work after the return is not timed", serious=True)


def input_changes(seen: Inspection) -> Iterable[Verdict]:
    if seen.changed:
        text = f"the call writes to {names_of(seen.changed)}: if it also reads it, each call begins with other values"
        yield Verdict("input changes", text, serious=True)
    elif seen.written:
        text = (
            f"the call writes to {names_of(seen.written)}: timed calls found what earlier ones left there, "
            "which does no harm if it is only a result"
        )
        yield Verdict("input changes", text, serious=True)
    replaced = [name for name in seen.replaced if name not in (seen.changed or seen.written)]
    if replaced:
        names = names_of(sorted(replaced, key=len))
        text = f"the call replaces {names} by another array: if it reads it, each call has other values"
        yield Verdict("input changes", text, serious=True)
    if seen.resized:
        text = f"{_hold(seen.resized)} a different number of items after each call: no two calls are alike"
        yield Verdict("input changes", text, serious=True)
    if seen.iterators:
        are = "is an iterator" if len(seen.iterators) == 1 else "are iterators"
        text = f"{names_of(seen.iterators)} {are}: each call gets what earlier ones left, or nothing"
        yield Verdict("input changes", text, serious=True)
    if seen.accumulates:
        text = "the call adds to the gradients of earlier calls: set them to None first, as a training step does"
        yield Verdict("input changes", text)


def values(seen: Inspection) -> Iterable[Verdict]:
    if seen.subnormal:
        text = f"{_hold(seen.subnormal)} subnormal numbers, which may take processors many times as long"
        yield Verdict("denormals", text, serious=True)
    if seen.zeros:
        text = f"{_hold(seen.zeros)} only zeros, which need less power: the clock stays higher than with other values"
        yield Verdict("zeros", text, serious=True)
    if seen.nan:
        text = f"{_hold(seen.nan)} NaN, which may take other times than numbers, and need less power"
        yield Verdict("NaN", text, serious=True)


def values_of_model(seen: Inspection) -> Iterable[Verdict]:
    if seen.nan:
        text = f"{_hold(seen.nan)} NaN: a device may take other times for it than for numbers; the model does not"
        yield Verdict("NaN", text, serious=True)


def cached(seen: Inspection) -> Iterable[Verdict]:
    if seen.cached:
        text = f"{names_of(seen.cached)} had the result cached: the look-up is timed"
        yield Verdict("first call differs", text, serious=True)


def unused(evidence: Evidence) -> Iterable[Verdict]:
    seen = evidence.inspection
    leaves_something = seen.gradients or seen.written or seen.changed or seen.replaced or seen.resized
    if not seen.result_none or leaves_something or not seen.inputs or evidence.framework == "Python":
        return
    if evidence.framework == "JAX":
        text = "the call returns nothing, and JAX can only wait for results: its work may still be running"
        yield Verdict("result unused", text, serious=True)
    else:
        text = "the call returns nothing and changes none of its inputs: a compiler may leave its work out"
        yield Verdict("result unused", text, serious=evidence.compiled_first)


def _hold(names: Sequence[str]) -> str:
    return f"{names_of(names)} {'holds' if len(names) == 1 else 'hold'}"


_RULES: tuple[Callable[[Inspection], Iterable[Verdict]], ...] = (works_later, input_changes, cached)
