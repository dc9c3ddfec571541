"""Measures the host time of the first use of CUDA and of the first uses of each operator. Needs torch and a GPU.

CUDA loads kernels lazily, in modules. Loading a module takes milliseconds. The first matrix product of each dtype also
sets up cuBLAS. The first convolution also loads the libraries of cuDNN. cuDNN prepares a plan for each new shape and
may compile kernels, which CUDA keeps in a cache on disk. Loading evicts code from the CPU caches, so the calls after it
take longer, too.

This module starts several processes, one after the other: in a fork of one process, the second calls take 1.3 times as
long. All processes call the same operators, but each process calls them in a different order. `kernel_modules.py` finds
which modules each call needs, `startup_fit.py` what each costs.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import msgspec

from unstall.decoding import from_json
from unstall.virtual.costs.first_calls import FirstCalls, OperatorCalls
from unstall.virtual.costs.kernel_modules import KernelModules
from unstall.virtual.costs.own_process import run_module
from unstall.virtual.costs.startup_fit import MeasuredStartup, fit
from unstall.virtual.costs.suite import Case, TensorPool

_LEAST_ORDERS = 6
_UNCACHED = (1, 3)  # orders for which CUDA keeps no compiled kernels on disk
_EVERY_SHAPES = 3  # every third process makes the other calls of an operator, too
_ELEMENTS = 1 << 20
_LONGEST_S = 120  # a process that takes longer is ended: a driver may hang
_SHAPES = 3  # calls of each operator that differ in their arguments
_CALLS = 8  # of an operator in a process, with its first arguments
Call: TypeAlias = tuple[int, str, str, tuple[object, ...], dict[str, object]]
"""A call of an operator: `(number, operator, precision, args, kwargs)`. `number` is the place of the case in the suite,
`operator` has its overload. Tensors are on the CPU.
"""


def small_calls(suite: Sequence[Case]) -> list[int]:
    """Returns the numbers of a few calls of each operator of the suite: the first ones with small arguments."""
    pool = TensorPool("meta", _ELEMENTS)
    found: dict[str, list[int]] = {}
    for number, case in enumerate(suite):
        numbers = found.setdefault(case.operator.partition(".")[0], [])
        if len(numbers) < _SHAPES:
            pool.begin()
            try:
                case.build(pool)
            except (RuntimeError, ValueError):  # too large, or its arguments are made by an operator of GPUs
                continue
            numbers.append(number)
    return list(chain.from_iterable(found.values()))


def measure_startup(
    kernels: KernelModules, few: Iterable[int], suite: Sequence[Case], orders: int, seconds: float
) -> MeasuredStartup:
    """Measures what first uses cost.

    Args:
        kernels: Which modules the kernels of the suite's calls are in.
        few: The numbers of the calls to make. Calls that need other modules are made, too.
        suite: The cases that gave the calls their numbers.
        orders: The number of processes.
        seconds: After this time, no more processes are started. At least six are, however long they
            take.

    Raises:
        RuntimeError: No process could use CUDA.
    """
    import torch

    begin = time.monotonic()
    found = []
    why = "no process was started"
    with TemporaryDirectory() as folder:
        calls = Path(folder) / "calls.pt"
        torch.save(_calls_of_suite(suite, _with_every_module(kernels, few)), calls)
        for order in range(orders):
            if order >= _LEAST_ORDERS and time.monotonic() - begin > seconds:
                break
            environment = {"CUDA_CACHE_DISABLE": "1"} if order in _UNCACHED else {}
            try:
                printed = run_module(__name__, {"calls": str(calls), "order": order}, environment, _LONGEST_S)
                found.append(from_json(printed.rpartition("\n")[2], FirstCalls))
            except RuntimeError as error:
                why = str(error)
    if not found:
        raise RuntimeError(why)
    return fit(found, kernels)


def _with_every_module(kernels: KernelModules, few: Iterable[int]) -> list[int]:
    """Returns `few`, with more calls until together they need every module."""
    numbers = list(few)
    covered = {module for number in numbers for module in kernels.needed(number)}
    for number in kernels.launched:
        if not kernels.needed(number) <= covered:
            numbers.append(number)
            covered |= kernels.needed(number)
    return numbers


def _calls_of_suite(suite: Sequence[Case], numbers: Sequence[int]) -> dict[str, list[Call]]:
    """Returns the calls of the suite with these numbers, by the operator's name."""
    from unstall.virtual.costs.measure import split

    pool = TensorPool("cpu", _ELEMENTS)
    known: dict[str, list[Call]] = {}
    for number in numbers:
        case = suite[number]
        pool.begin()
        try:
            call = number, case.operator, case.precision, *split(case.build(pool))
        except (RuntimeError, ValueError):  # too large, or its arguments are made by an operator of GPUs
            continue
        known.setdefault(case.operator.partition(".")[0], []).append(call)
    return known


def _in_a_process(order: int, known: Mapping[str, list[Call]]) -> FirstCalls:
    """Calls the operators in a random order, with `order` as the seed. The process must not have used CUDA before."""
    import torch

    names = sorted(known)
    random.Random(order).shuffle(names)
    init = _taken(torch.cuda.init)
    context = _taken(lambda: torch.empty(1, device="cuda"))
    found = []
    libraries = _libraries()
    for name in names:
        try:
            at = order % len(known[name])
            calls = (known[name][at:] + known[name][:at])[: 1 if order % _EVERY_SHAPES else None]
            ns, *others = [_times(call, 1 if nth else _CALLS) for nth, call in enumerate(calls)]
        except (RuntimeError, ValueError, TypeError):
            continue
        before, libraries = libraries, _libraries()
        numbers = [number for number, *_ in calls]
        found.append(OperatorCalls(name, numbers, ns, [first for (first,) in others], sorted(libraries - before)))
    return FirstCalls(init, context, found, cached=os.environ.get("CUDA_CACHE_DISABLE") != "1")


def _times(call: Call, count: int) -> list[int]:
    """Returns the ns of each of `count` calls, with the wait for the device."""
    import torch

    from unstall.virtual.costs.measure import multiplying, resolve

    _, operator, precision, args, kwargs = call
    on_gpu = partial(resolve(operator), *map(_on_gpu, args), **{key: _on_gpu(at) for key, at in kwargs.items()})
    torch.cuda.synchronize()

    def waited() -> None:
        on_gpu()
        torch.cuda.synchronize()

    with multiplying(precision):
        return [_taken(waited) for _ in range(count)]


def _libraries() -> set[str]:
    """Returns the shared libraries that this process has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split()[-1]).name for line in maps if ".so" in line}


def _on_gpu(value: Any) -> Any:
    """Returns an argument on the GPU. No kernel runs for that: all memory between a tensor's first and last element is
    copied."""
    import torch

    if isinstance(value, torch.Tensor):
        span = 1 + sum((size - 1) * stride for size, stride in zip(value.size(), value.stride(), strict=True))
        memory = value.as_strided((span if value.numel() else 0,), (1,))
        return memory.to("cuda").as_strided(value.size(), value.stride(), 0)
    if isinstance(value, list | tuple):
        return type(value)(map(_on_gpu, value))
    return torch.device("cuda") if isinstance(value, torch.device) else value


def _taken(call: Any) -> int:
    begin = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begin


def main() -> None:
    """Reads what to measure from standard input. Prints what was measured, as JSON: a `FirstCalls`."""
    import torch

    asked: dict[str, Any] = json.load(sys.stdin)
    found = _in_a_process(asked["order"], torch.load(asked["calls"], weights_only=True))
    print("\n" + msgspec.json.encode(found).decode(), end="")


if __name__ == "__main__":
    main()
