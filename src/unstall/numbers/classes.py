"""Of which class a difference is, and a sentence about it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unstall.numbers.reasons import first_bits
from unstall.numbers.run import run
from unstall.numbers.ways import Function, Way, as_given
from unstall.rounding.judge import RUNS, Compared, Judge, factor_of
from unstall.rounding.noise import UNIT, Noise, adds_up, is_drawn

DIFFERENT = "No rounding explains that: it computes something else."


def class_of(found: Compared, taken: Way, fn: Function, inputs: Sequence[object], judge: Judge) -> tuple[str, str]:
    """Returns a difference's class, and a sentence about it."""
    first = found.first
    if taken.name == "repeat" and not found.equal:
        return _of_repeat(found)
    if first is None:
        if found.equal:
            return "equal", "The same bits."
        return "rounding", first_bits(found, judge.before.operators)
    if first.before is None or first.after is None or first.before.shape != first.after.shape:
        return "shape", _shapes(
            first.before.shape if first.before else None, first.after.shape if first.after else None
        )
    seen = first.before
    if not taken.operators and any(is_drawn(each.name) for each in judge.before.operators):
        return "random", "It draws random numbers, and this way may draw others."
    if is_drawn(seen.name):
        return "random", "Other random numbers are drawn: by another generator, in another order, or of another range."
    tensors = (first.after, *found.added)
    rounded = [each.dtype for each in tensors if UNIT.get(each.dtype, 0) > UNIT.get(seen.dtype, 0)]
    if rounded:
        types = f"{rounded[0]} instead of {seen.dtype}".replace("torch.", "")
        return "type", f"A coarser type: {types}."
    if _is_tf32(taken, fn, inputs):
        return "TF32", 'One way rounds factors to TF32. torch.set_float32_matmul_precision("highest") turns that off.'
    factor = factor_of(found)
    if factor is not None:
        return "factor", f"There, all elements differ by a factor of {factor:.6g}: no rounding does that."
    return "different", DIFFERENT


def _of_repeat(found: Compared) -> tuple[str, str]:
    other = next((pair for pair in found.pairs if pair.difference > 0), None)
    if other is None:
        return "state", "It calls other operators each time, so it depends on more than its arguments."
    if found.first is not None or not adds_up(other.seen.name):
        return "state", f"{other.seen.name} differs each time by more than rounding: it depends on more than arguments."
    return "nondeterministic", (
        f"{other.seen.name} gives other bits each time, within rounding: it adds up in an order that varies. "
        "torch.use_deterministic_algorithms(True) forbids that."
    )


def _shapes(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> str:
    if before is None or after is None:
        return f"Only {'this way' if before is None else 'the function as it is'} has this tensor."
    return f"Its shape is {after} instead of {before}."


def _is_tf32(taken: Way, fn: Function, inputs: Sequence[object]) -> bool:
    """Returns whether both ways are within rounding of each other once products are not rounded to TF32."""
    if not torch.cuda.is_available():
        return False
    try:
        precision, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:  # the program sets fp32_precision, which does not go together with these
        return False
    if precision == "highest" and not convolutions:
        return False
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        noisy = [run(as_given(fn, inputs), Noise(seed)) for seed in range(RUNS)]
        return Judge(run(as_given(fn, inputs)), noisy).compare(run(taken)).first is None
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = convolutions
