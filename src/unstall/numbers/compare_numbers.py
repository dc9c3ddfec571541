"""`compare_numbers`: whether two ways to run a function give the same, as far as arithmetic can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from unstall.errors import UsageError
from unstall.guest.rng import RandomStates
from unstall.numbers.answer import Numbers, Row
from unstall.numbers.classes import DIFFERENT, class_of
from unstall.numbers.halves import compare_halves
from unstall.numbers.reasons import composed
from unstall.numbers.run import run
from unstall.numbers.ways import Function, as_given, way
from unstall.numbers.whole import Runs, pattern_at, tells_factor
from unstall.rounding.judge import RUNS, Judge
from unstall.rounding.noise import Noise


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
              first tensor have a batch, and all results must have one. Operators are those of the first half alone.
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
    try:
        if taken.name == "batch" and judge.changes_arguments:
            return _row_of_half(fn, inputs)
        after = run(taken)
        found = judge.compare(after)
        kind, sentence = class_of(found, taken, fn, inputs, judge)
        pattern = None
        if taken.name == "batch" and kind in ("rounding", "factor", "different"):
            halves = compare_halves(fn, inputs)
            kind, sentence = (halves.verdict() if halves is not None else None) or (kind, sentence)
            if halves is not None and kind == "different" and halves.found.first is not None:
                found = halves.found
        elif kind in ("factor", "different"):
            runs = Runs(judge.before, after, found)
            pattern = pattern_at(runs, partial(as_given, fn, inputs), partial(way, which, fn, inputs))
            if kind == "factor" and tells_factor(found) and (pattern is None or not pattern.has_factor):
                kind, sentence = "different", DIFFERENT  # an operator multiplies, but another undoes it
        why = composed(found, judge.before.operators) if kind in ("rounding", "batch") else ""
        return Row(taken.name, found, kind, sentence, why, pattern)
    except Exception as error:  # of this way; the others may run
        return Row(taken.name, None, "failed", f"It cannot run: {type(error).__name__}: {error}")


def _row_of_half(fn: Function, inputs: Sequence[object]) -> Row:
    """Returns the row of "batch" for a function that changes its arguments: only the first half runs."""
    halves = compare_halves(fn, inputs)
    if halves is not None and halves.found.first is not None:
        return Row("batch", halves.found, *(halves.verdict() or ("different", "")))
    return Row("batch", None, "failed", "It changes its arguments, so half batches would not be independent.")


@contextmanager
def _kept_random_states() -> Iterator[None]:
    states = RandomStates()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        states.put_back()
