"""`compare_numbers`: whether two ways to run a function give the same, as far as arithmetic can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from unstall.errors import UsageError
from unstall.numbers.answer import Numbers, Row
from unstall.numbers.judge import RUNS, Compared, Pair, compared, factor_of, is_random
from unstall.numbers.noise import UNIT, Noise
from unstall.numbers.run import Seen, run
from unstall.numbers.ways import Function, Way, as_given, way

_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "convolution", "convolution_backward"}


def compare_numbers(
    fn: Function, *inputs: object, across: Sequence[str | Callable[..., object]] = ("repeat", "float64")
) -> Numbers:
    """Runs a function in several ways, and finds the first operator at which a way differs by more than rounding.

    All ways run on copies of the arguments, from the same random state, and also the backward pass if a result needs
    gradients. What rounding explains is measured: the function runs 8 times more, with random errors of the size of
    each operator's rounding errors (Monte Carlo arithmetic, see `noise.py`). A difference of a tensor is beyond
    rounding if Student's test says so, at a confidence of 99.9 % for all tensors of a way together.

    Args:
        fn: A function or a module. Modules and tensors that it uses should be among `inputs`, since these are what a
            way copies or moves.
        inputs: Its arguments: modules, tensors, and containers of tensors.
        across: The ways:

            - "repeat": once more.
            - "cpu", "cuda": on that device.
            - "float64": in that type.
            - "batch": each half of the batch on its own. All tensors whose first dimension is as long as that of the
              first tensor have a batch. Only results and gradients are compared.
            - "graph": by `unstall.graphed`. "compiled": by `torch.compile`. Only results and gradients are compared.
            - another function or module: called with the same arguments; if it is a module, on its device.

    Returns:
        A row for each way. `str()` is a report for a terminal; `save()` writes it to a file.

    Raises:
        UsageError: a way is unknown, or is not possible here.
    """
    if isinstance(across, str):
        raise UsageError(f'`across` is a sequence of ways: across=("{across}",)')
    with _kept_random_state():
        before = _seen(as_given(fn, inputs))
        if not any(seen.kind == "result" for seen in before):
            raise UsageError("the function returns no tensor of floating point numbers, so nothing can be compared")
        noisy = [_seen(as_given(fn, inputs), Noise(seed)) for seed in range(RUNS)]
        return Numbers(tuple(_row(way(which, fn, inputs), before, noisy) for which in across), len(before))


def _row(taken: Way, before: Sequence[Seen], noisy: Sequence[Sequence[Seen]]) -> Row:
    after = _seen(taken)
    if not taken.operators:
        before, noisy = _ends(before), [_ends(each) for each in noisy]
    found = compared(before, after, noisy)
    return Row(taken.name, found, *_class_of(found, taken, before, noisy))


def _class_of(found: Compared, taken: Way, before: Sequence[Seen], noisy: Sequence[Sequence[Seen]]) -> tuple[str, str]:
    """Returns a difference's class, and a sentence about it."""
    first = found.first
    if first is None:
        if found.equal:
            return "equal", "The same bits."
        if taken.name == "repeat":
            return "nondeterministic", _nondeterministic(found)
        return "rounding", "Sums in another order, or other roundings: harmless."
    if is_random(first):
        return "random", "Random numbers differ: the ways draw from different generators, or draw in another order."
    rounded = [each.dtype for each in (first.after, *found.added) if UNIT[each.dtype] > UNIT[first.before.dtype]]
    if rounded:
        types = f"{rounded[0]} instead of {first.before.dtype}".replace("torch.", "")
        return "type", f"A coarser type: {types}."
    if first.before.name in _PRODUCTS and _is_tf32(taken, before, noisy):
        return "TF32", 'It rounds its factors to TF32. torch.set_float32_matmul_precision("highest") turns that off.'
    factor = factor_of(found)
    if factor is not None:
        return "factor", f"All elements differ by a factor of {factor:.6g}: no rounding does that."
    return "different", "No rounding explains that: it computes something else."


def _nondeterministic(found: Compared) -> str:
    other: Pair | None = next((pair for pair in found.pairs if pair.difference > 0), None)
    name = other.before.name if other else "an operator"
    return (
        f"{name} gives other bits each time, within rounding: it adds up in an order that varies. "
        "torch.use_deterministic_algorithms(True) forbids that."
    )


def _is_tf32(taken: Way, before: Sequence[Seen], noisy: Sequence[Sequence[Seen]]) -> bool:
    """Returns whether the way is within rounding once products are not rounded to TF32."""
    precision = torch.get_float32_matmul_precision()
    convolutions = torch.backends.cudnn.allow_tf32
    if precision == "highest" and not convolutions:
        return False
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        return compared(before, _seen(taken), noisy).first is None
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = convolutions


def _seen(taken: Way, noise: Noise | None = None) -> list[Seen]:
    call = noise.run if noise is not None else None
    return run(taken, call)


def _ends(seen: Sequence[Seen]) -> list[Seen]:
    return [each for each in seen if each.kind != "operator"]


@contextmanager
def _kept_random_state() -> Iterator[None]:
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        yield
