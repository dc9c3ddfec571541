"""`compare_numbers`: whether two ways to run a function give the same, as far as arithmetic can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from unstall.errors import UsageError
from unstall.guest.rng import RandomStates
from unstall.numbers.answer import Numbers, Row
from unstall.numbers.run import run
from unstall.numbers.ways import Function, Way, as_given, way
from unstall.rounding.judge import RUNS, Compared, Judge, factor_of
from unstall.rounding.noise import UNIT, Noise, adds_up, is_drawn


def compare_numbers(
    fn: Function, *inputs: object, across: Sequence[str | Callable[..., object]] = ("repeat", "float64")
) -> Numbers:
    """Runs a function in several ways, and finds the first operator at which a way differs by more than rounding.

    All ways run on copies of the arguments, from the same random state, and also the backward pass if a result needs
    gradients. Results, gradients and the arguments after the run are compared; and between them, operators. What
    rounding explains is measured: the function runs 8 times more, with random errors of the size of each operator's
    rounding errors (Monte Carlo arithmetic, see `noise.py`). A difference is beyond rounding if it is larger than those
    errors by Student's factor, at a confidence of 99.9 % for all tensors of a way together.

    Args:
        fn: A function, a module, or a method of a module. Modules that it uses must be among `inputs`, since these are
            what a way copies or moves.
        inputs: Its arguments: modules, tensors, and containers of both.
        across: The ways:

            - "repeat": once more.
            - "cpu", "cuda": on that device.
            - "float64": in that type. Random numbers are drawn as in float32.
            - "batch": each half of the batch on its own. All tensors whose first dimension is as long as that of the
              first tensor have a batch, and all results must have one. Operators are not compared.
            - "graph": by `unstall.graphed`. "compiled": by `torch.compile`. Operators are not compared.
            - another function or module: called with the same arguments; if it is a module, on its device.

    Returns:
        A row for each way. `str()` is a report for a terminal; `save()` writes it to a file.

    Raises:
        UsageError: a way is unknown; the function uses a module that is not among its arguments; nothing can be
            compared.
    """
    if isinstance(across, str) or callable(across):
        raise UsageError('`across` is a list of ways, such as across=["float64"]')
    with _kept_random_states():
        before = run(as_given(fn, inputs))
        if not before.ends:
            raise UsageError("the function returns no tensor and is given none, so nothing can be compared")
        judge = Judge(before, [run(as_given(fn, inputs), Noise(seed)) for seed in range(RUNS)])
        names: dict[str, int] = {}
        rows = []
        for which in across:
            row = _row(which, fn, inputs, judge)
            names[row.way] = names.get(row.way, 0) + 1
            rows.append(replace(row, way=f"{row.way} {names[row.way]}") if names[row.way] > 1 else row)
        return Numbers(tuple(rows), len(before))


def _row(which: str | Function, fn: Function, inputs: Sequence[object], judge: Judge) -> Row:
    taken = way(which, fn, inputs)
    if taken.name == "batch" and judge.changes_arguments:
        return Row(taken.name, None, "failed", "It changes its arguments, so half batches would not be independent.")
    try:
        found = judge.compare(run(taken))
        return Row(taken.name, found, *_class_of(found, taken, fn, inputs, judge))
    except Exception as error:  # of this way; the others may run
        return Row(taken.name, None, "failed", f"It cannot run: {type(error).__name__}: {error}")


def _class_of(found: Compared, taken: Way, fn: Function, inputs: Sequence[object], judge: Judge) -> tuple[str, str]:
    """Returns a difference's class, and a sentence about it."""
    first = found.first
    if taken.name == "repeat" and not found.equal:
        return _of_repeat(found)
    if first is None:
        if found.equal:
            return "equal", "The same bits."
        return "rounding", "All that differs is rounding: sums in another order, for example."
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
    return "different", "No rounding explains that: it computes something else."


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


@contextmanager
def _kept_random_states() -> Iterator[None]:
    states = RandomStates()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        states.put_back()
