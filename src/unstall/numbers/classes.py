"""Finds the kind of a difference between two runs of a function, and writes a sentence about it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from unstall.numbers.determinism import about_determinism
from unstall.numbers.kernels import kernels_of
from unstall.numbers.precision import explained, off
from unstall.numbers.reasons import first_bits, named, same_ends
from unstall.numbers.streams import Streams
from unstall.numbers.times import cost_of
from unstall.numbers.ways import Way
from unstall.rounding.facts import UNIT, adds_up, is_drawn
from unstall.rounding.judge import Compared, Judge, factor_of
from unstall.rounding.samples import Ran

DIFFERENT = "No rounding explains that: it computes something else."


@dataclass(frozen=True, slots=True)
class Sides:
    """Two ways of running a function that are compared with each other. In the first, the function
    is unchanged.

    Attributes:
        base: Returns the first way. It is called anew for each run, because a run may change the
            arguments.
        way: Returns the second way. It is called anew for each run, too.
        base_streams: The streams on which operators ran in the first way.
        way_streams: The streams on which operators ran in the second way.
    """

    base: Callable[[], Way]
    way: Callable[[], Way]
    base_streams: Streams
    way_streams: Streams

    @property
    def several(self) -> bool:
        """Whether operators can overlap in at least one of the two ways."""
        return self.base_streams.several or self.way_streams.several


def class_of(found: Compared, taken: Way, judge: Judge, sides: Sides) -> tuple[str, str]:
    """Returns `(kind, sentence)`: the kind of the difference between two runs, as in `answer.Row`,
    and a sentence about the difference.

    May run the function again to find the cause of the difference.

    Args:
        found: The comparison of the two runs.
        taken: The way in which the second run ran the function.
        judge: Compares further runs with the first run, in which the function was unchanged.
        sides: Both ways. The function can be run in them again.
    """
    is_repeat = taken.name in ("repeat", "serial")
    kind, sentence = class_of_runs(found, judge.before, is_repeat=is_repeat, operators=taken.operators)
    if kind in ("factor", "different"):
        return _of_precision(found, judge, sides) or (kind, sentence)
    if kind == "nondeterministic":
        return kind, sentence + _about_kernel(found, judge, sides)
    return kind, sentence


def class_of_runs(found: Compared, before: Ran, *, is_repeat: bool, operators: bool = True) -> tuple[str, str]:
    """Returns `(kind, sentence)`: the kind of the difference between two runs, as in `answer.Row`,
    and a sentence about the difference.

    Uses only what the two runs show. Runs nothing again.

    Args:
        found: The comparison of the two runs.
        before: The first run.
        is_repeat: Whether the second run repeats the first run in the same way.
        operators: Whether the second run calls the function's own operators. Graphs and compiled
            functions call other operators.
    """
    first = found.first
    if is_repeat and not found.equal:
        return _of_repeat(found)
    if first is None:
        if found.equal:
            return "equal", "The same bits."
        ends = [pair for pair in found.pairs if pair.is_end]
        if ends and not any(pair.difference for pair in ends):
            return "equal", same_ends(found)
        return "rounding", first_bits(found, before.operators)
    if first.before is None or first.after is None or first.before.shape != first.after.shape:
        return "shape", _shapes(
            first.before.shape if first.before else None, first.after.shape if first.after else None
        )
    seen = first.before
    if not operators and any(is_drawn(each.name) for each in before.operators):
        return "random", "It draws random numbers, and this way may draw others."
    if is_drawn(seen.name):
        return "random", "Other random numbers are drawn: by another generator, in another order, or of another range."
    tensors = (first.after, *found.added)
    rounded = [each.dtype for each in tensors if UNIT.get(each.dtype, 0) > UNIT.get(seen.dtype, 0)]
    if rounded:
        types = f"{rounded[0]} instead of {seen.dtype}".replace("torch.", "")
        return "type", f"A coarser type: {types}."
    factor = factor_of(found)
    if factor is not None:
        return "factor", f"There, all elements differ by a factor of {factor:.6g}: no rounding does that."
    return "different", DIFFERENT


def _of_repeat(found: Compared) -> tuple[str, str]:
    other = found.other_bits
    if other is None:
        return "state", "It calls other operators each time, so it depends on more than its arguments."
    name = named(other.seen)
    if is_drawn(other.seen.name):
        return "random", f"{name} draws other numbers each time: of a generator that is not among the arguments."
    if found.first is not None or not adds_up(other.seen.name):
        return "state", f"{name} differs each time by more than rounding: it depends on more than arguments."
    return (
        "nondeterministic",
        f"{name} gives other bits each time, within rounding: it adds up in an order that varies.",
    )


def _about_kernel(found: Compared, judge: Judge, sides: Sides) -> str:
    """Returns sentences about an operator whose rounding varies from run to run: the names of its
    kernels, and whether deterministic algorithms help.
    """
    other = found.other_bits
    at = next((at for at, seen in enumerate(judge.before.operators) if other and seen is other.before), None)
    kernels = kernels_of(sides.base(), at) if at is not None else ()
    said = f" Its kernel{'s are' if len(kernels) > 1 else ' is'} {', '.join(kernels)}." if kernels else ""
    return f"{said} {about_determinism(sides.base, one_at_a_time=sides.several)}"


def _shapes(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> str:
    if before is None or after is None:
        return f"Only {'this way' if before is None else 'the function as it is'} has this tensor."
    return f"Its shape is {after} instead of {before}."


def _of_precision(found: Compared, judge: Judge, sides: Sides) -> tuple[str, str] | None:
    """Returns `(kind, sentence)` of a difference that goes away when settings for less exact
    products on a GPU, such as TF32, are turned off. Returns None if no such setting explains the
    difference.
    """
    if not (sides.base_streams.any or sides.way_streams.any):
        return None
    seen = [each for pair in found.pairs for each in (pair.before, pair.after) if each is not None]
    types = frozenset(each.dtype for each in (*seen, *judge.before.operators, *found.added))
    by = explained(sides.base, sides.way, types, one_at_a_time=sides.several)
    if by is None:
        return None
    what = " and ".join(f"{each.what}: {each.how()} turns that off" for each in by.matter)
    on_gpu = sides.way if sides.way_streams.any else sides.base
    cost = cost_of("Turning it off takes", on_gpu, nullcontext, lambda: off(by.matter))
    return by.matter[0].kind, f"One way {what}.{cost}"
