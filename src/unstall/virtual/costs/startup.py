"""Measures the host time of the first use of CUDA and of the first uses of each operator. Needs torch and a GPU.

CUDA loads kernels lazily, in modules. A module has the kernels of a few operators. Loading a module takes milliseconds.
The first matrix product also sets up cuBLAS. The first convolution also loads the libraries of cuDNN. cuDNN prepares a
plan for each new shape and may compile kernels, which CUDA keeps in a cache on disk. Loading evicts code from the CPU
caches, so the calls after it take longer, too.

This module starts several processes that have not used CUDA. All processes call the same operators, but each process
calls them in a different order. `startup_fit.py` infers from the times what each first use costs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from unstall.decoding import from_json
from unstall.virtual.costs.model import Startup
from unstall.virtual.costs.startup_fit import FirstCalls, OperatorCalls, fit

_LEAST_ORDERS = 6
_UNCACHED = (1, 3)  # orders for which CUDA keeps no compiled kernels on disk
_EVERY_SHAPES = 3  # every third process calls other shapes, too, since they take twice as long as the first ones
_ELEMENTS = 1 << 20
_LONGEST_S = 120  # a process that takes longer is ended: a driver may hang
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Settings of a process that forks others: the threads of torch's operators would be missing in these, which would wait
for them forever.
"""
_CALLS, _SHAPES = 8, 3  # calls of an operator in a process; shapes that it is called with
Call: TypeAlias = tuple[str, tuple[object, ...], dict[str, object]]
"""A call of an operator: `(operator, args, kwargs)`. `operator` is its name with the overload."""


def measure_startup(orders: int, seconds: float) -> Startup:
    """Measures what first uses cost. Starts processes, one after the other. Each calls the
    operators in another order.

    Args:
        orders: The number of processes.
        seconds: After this time, no more processes are started. At least six are, however long they
            take.

    Raises:
        RuntimeError: No process could use CUDA.
    """
    ran = subprocess.run(
        [sys.executable, "-m", __name__, str(orders), str(seconds)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | _ONE_THREAD,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().rpartition("\n")[2] or f"exit code {ran.returncode}")
    return fit(from_json(ran.stdout, list[FirstCalls]))


def _calls_of_suite() -> dict[str, list[Call]]:
    """Returns a few calls of each operator of the suite, with different shapes. The key is the operator's name. A call
    is (operator with overload, arguments, keyword arguments). Tensors are on the CPU.
    """
    from unstall.virtual.costs.measure import split
    from unstall.virtual.costs.suite import TensorPool, cases

    pool = TensorPool("cpu", _ELEMENTS)
    known: dict[str, list[Call]] = {}
    for case in cases():
        calls = known.setdefault(case.operator.partition(".")[0], [])
        if len(calls) < _SHAPES:
            pool.begin()
            try:
                calls.append((case.operator, *split(case.build(pool))))
            except (RuntimeError, ValueError):  # too large, or its arguments are made by an operator of GPUs
                continue
    return known


def _in_a_process(order: int, known: Mapping[str, list[Call]]) -> FirstCalls:
    """Calls the operators in a random order, with `order` as the seed. The process must not have used CUDA before."""
    import torch

    names = sorted(known)
    random.Random(order).shuffle(names)
    init = _taken(torch.cuda.init)
    context = _taken(lambda: torch.empty(1, device="cuda"))
    calls = []
    libraries = _libraries()
    for name in names:
        try:
            shapes = known[name][: 1 if order % _EVERY_SHAPES else _SHAPES]
            ns, *others = [_times(call, 1 if at else _CALLS) for at, call in enumerate(shapes)]
        except (RuntimeError, ValueError, TypeError):
            continue
        before, libraries = libraries, _libraries()
        calls.append(OperatorCalls(name, ns, [first for (first,) in others], sorted(libraries - before)))
    return FirstCalls(init, context, calls, cached=os.environ.get("CUDA_CACHE_DISABLE") != "1")


def _times(call: Call, count: int) -> list[int]:
    """Returns the ns of each of `count` calls, with the wait for the device."""
    import torch

    from unstall.virtual.costs.measure import resolve

    operator, args, kwargs = call
    on_gpu = partial(resolve(operator), *map(_on_gpu, args), **{key: _on_gpu(at) for key, at in kwargs.items()})
    torch.cuda.synchronize()

    def waited() -> None:
        on_gpu()
        torch.cuda.synchronize()

    return [_taken(waited) for _ in range(count)]


def _libraries() -> set[str]:
    """Returns the shared libraries that this process has loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split()[-1]).name for line in maps if ".so" in line}


def _on_gpu(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda").copy_(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_on_gpu, value))
    return torch.device("cuda") if isinstance(value, torch.device) else value


def _taken(call: Any) -> int:
    begin = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begin


def main() -> None:
    """Prints what was measured in each process, as JSON: a list of `FirstCalls`. The processes are
    forked from this one, which has imported torch and not used CUDA.
    """
    begin = time.monotonic()
    orders, seconds = int(sys.argv[1]), float(sys.argv[2])
    known = _calls_of_suite()
    found = []
    for order in range(orders):
        if order >= _LEAST_ORDERS and time.monotonic() - begin > seconds:
            break
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            signal.alarm(_LONGEST_S)
            os.close(reading)
            if order in _UNCACHED:
                os.environ["CUDA_CACHE_DISABLE"] = "1"
            with os.fdopen(writing, "wb") as file:
                file.write(msgspec.json.encode(_in_a_process(order, known)))
                file.flush()
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            data = file.read()
        os.waitpid(child, 0)
        if data:
            found.append(json.loads(data))
    if not found:
        sys.exit("no process could use CUDA")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
