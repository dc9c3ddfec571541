"""What one look at a call says of all its times: one function a kind, each from the look alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from unstall.measuring.look import Look
from unstall.measuring.measurement import Verdict
from unstall.measuring.wording import names_of


def of_look(look: Look, *, virtual: bool = False) -> list[Verdict]:
    """Those that hold. The times of a virtual GPU do not depend on values."""
    rules = (*_RULES, values_of_model if virtual else values)
    return [verdict for rule in rules for verdict in rule(look)]


def works_later(look: Look) -> Iterable[Verdict]:
    if look.later:
        yield Verdict("works later", f"{look.later}: what it does after its return is not timed", serious=True)


def input_changes(look: Look) -> Iterable[Verdict]:
    if look.changed:
        text = f"the call writes to {names_of(look.changed)}: if it reads that too, each call begins with other values"
        yield Verdict("input changes", text, serious=True)
    elif look.written:
        text = (
            f"the call writes to {names_of(look.written)}: those that were timed found there what earlier ones "
            "left; no harm is done where it is a result alone"
        )
        yield Verdict("input changes", text, serious=True)
    replaced = [name for name in look.replaced if name not in (look.changed or look.written)]
    if replaced:
        names = names_of(sorted(replaced, key=len))
        text = f"the call puts another array in the place of {names}: if it reads that, each call has other values"
        yield Verdict("input changes", text, serious=True)
    if look.resized:
        text = f"{_hold(look.resized)} another number of items after each call: no two calls are alike"
        yield Verdict("input changes", text, serious=True)
    if look.iterators:
        are = "is an iterator" if len(look.iterators) == 1 else "are iterators"
        text = f"{names_of(look.iterators)} {are}: each call has what those before left, or nothing"
        yield Verdict("input changes", text, serious=True)
    if look.accumulates:
        text = "the call adds to gradients that earlier ones left: a step that sets them to None first does not"
        yield Verdict("input changes", text)


def values(look: Look) -> Iterable[Verdict]:
    if look.subnormal:
        text = f"{_hold(look.subnormal)} subnormal numbers, which processors may take many times as long for"
        yield Verdict("denormals", text, serious=True)
    if look.zeros:
        text = f"{_hold(look.zeros)} zeros alone, which cost less power: clocks stay higher than with other values"
        yield Verdict("zeros", text, serious=True)
    if look.nan:
        text = f"{_hold(look.nan)} NaN, which may take another time than numbers, and cost less power"
        yield Verdict("NaN", text, serious=True)


def values_of_model(look: Look) -> Iterable[Verdict]:
    if look.nan:
        text = f"{_hold(look.nan)} NaN: a device may take another time for it than for numbers, the model does not"
        yield Verdict("NaN", text, serious=True)


def cached(look: Look) -> Iterable[Verdict]:
    if look.cached:
        text = f"{names_of(look.cached)} had the result at hand: what is timed is the look-up"
        yield Verdict("first call differs", text, serious=True)


def _hold(names: Sequence[str]) -> str:
    return f"{names_of(names)} {'holds' if len(names) == 1 else 'hold'}"


_RULES: tuple[Callable[[Look], Iterable[Verdict]], ...] = (works_later, input_changes, cached)
