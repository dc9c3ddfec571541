"""Measures a GPU for `unstall calibrate`: facts about the GPU, the cases of the suite, and the host
time of each operator. Needs torch and a GPU.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence

import torch

from unstall.replay.program import WHOLE
from unstall.virtual.costs.facts import measure_facts
from unstall.virtual.costs.gpu_file import GpuFile, gpu_named, gpu_names
from unstall.virtual.costs.kernel_modules import kernel_modules
from unstall.virtual.costs.measure import measure, resolve, split
from unstall.virtual.costs.measured_gpu import Tables, assemble, in_this_host
from unstall.virtual.costs.operator_calls import host_pace, measure_operator_calls
from unstall.virtual.costs.startup import measure_startup, small_calls
from unstall.virtual.costs.startup_fit import MeasuredStartup
from unstall.virtual.costs.suite import Case, TensorPool, cases

_WITHIN = 0.056
"""If similar calls predict the time of a call within this relative error, the file that `unstall
calibrate` writes does not contain the call.
"""
_STARTUP_SHARE, _HOST_SHARE = 0.3, 0.1  # of the time
_ORDERS, _FEW_ORDERS = 24, 6  # processes that measure first uses, each of which takes about seven seconds
_HOST_SECONDS = 60.0
_QUICK_RANK, _USUAL_RANK = 0, 3
_REFERENCE = "h200"  # the pace of its host is 1


def calibrate(minutes: float, quick: bool, progress: Callable[[str], None]) -> GpuFile:
    """Measures the GPU of this machine: some cases of each operator, then the others, the most important first.

    Returns the content of the .json file that describes the GPU.

    Args:
        minutes: About how long this may take.
        quick: Whether to measure only the most important cases.
        progress: A function that is called with a short text about what is being measured.

    Raises:
        RuntimeError: Some part of the file could not be measured.
    """
    seconds = 60 * minutes
    begin = time.monotonic()
    rank = _QUICK_RANK if quick else _USUAL_RANK
    chosen = cases(rank)
    progress("the host's part")  # first: once a profiler was attached, every launch takes longer
    hosts = measure_operator_calls(chosen, begin + seconds * _HOST_SHARE)
    pace = host_pace(hosts, gpu_named(_REFERENCE)) if hosts else None
    progress("queue, latencies, copies")
    facts = measure_facts()
    missing = {"device", "peaks", "calls", "queue", "latencies", "graph", "copies", "memset"} - set(facts)
    if missing:
        raise RuntimeError(f"{', '.join(sorted(missing))} could not be measured")
    tables = Tables()
    done = 0
    number_of = {id(case): number for number, case in enumerate(chosen)}
    launching: dict[str, int] = {}  # by the name of a kernel: the first case that launched it
    for observations in measure(chosen, begin + seconds * (1 - _STARTUP_SHARE)):
        for seen in observations:
            repeats = (round(seen.repeats.ns), round(WHOLE * seen.repeats.beside)) if seen.repeats else ()
            tables.add((seen.signature, seen.kernels, seen.taken, seen.kept), repeats)
            for kernel in seen.kernels:
                launching.setdefault(kernel.name, number_of[id(seen.case)])
        done += len(observations)
        progress(f"{done} of {len(chosen)} calls")
    device = facts["device"]
    measured_on = f"a {device['name']} with torch {device['torch']} for CUDA {device['cuda']}: {done} calls"
    progress("first uses")
    orders = _FEW_ORDERS if quick else _ORDERS
    first_uses = _first_uses(chosen, rank, launching.values(), orders, begin + seconds)
    progress("tables")
    return assemble(facts, tables, hosts, first_uses, measured_on, _WITHIN, pace)


def calibrate_host(progress: Callable[[str], None]) -> GpuFile:
    """Measures how fast the host of this machine is, for a GPU that the package has the figures of.

    Returns the content of a file that describes that GPU in this machine.

    Args:
        progress: A function that is called with a short text about what is being measured.

    Raises:
        RuntimeError: The package has no figures of such a GPU, or the host could not be measured.
    """
    device = torch.cuda.get_device_name(0)
    found = [gpu for gpu in map(gpu_named, gpu_names()) if gpu.file.device.name == device]
    if not found:
        raise RuntimeError(f"there is no file of a {device} to take the GPU's figures from: calibrate without --host")
    gpu = found[0]
    progress("the host's part")
    hosts = measure_operator_calls(cases(_QUICK_RANK), time.monotonic() + _HOST_SECONDS)
    pace = host_pace(hosts, gpu_named(_REFERENCE))
    return in_this_host(gpu, pace, f"{len(hosts)} operators with torch {torch.__version__}")


def _first_uses(
    suite: Sequence[Case], rank: int, launching: Iterable[int], orders: int, deadline: float
) -> MeasuredStartup | None:
    few = small_calls(suite)
    try:
        kernels = kernel_modules([*few, *launching], rank)
        return measure_startup(kernels, few, suite, orders, deadline - time.monotonic())
    except RuntimeError as error:
        print(f"first uses: not measured: {error}", file=sys.stderr)
        return None


def try_shapes(most: int = _USUAL_RANK) -> tuple[int, list[str]]:
    """Runs the cases of the suite that the meta device can run, which needs no GPU.

    Args:
        most: Only cases whose `rank` is at most this are run.

    Returns:
        `(count, errors)`: how many cases were run, and a text for each operator that raised an
        error.
    """
    pool = TensorPool("meta")
    wrong: dict[str, str] = {}
    chosen = [case for case in cases(most) if case.on_meta]
    for case in chosen:
        pool.begin()
        try:
            args, kwargs = split(case.build(pool))
            resolve(case.operator)(*args, **kwargs)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            wrong.setdefault(case.operator, str(error).partition("\n")[0])
    return len(chosen), [f"{operator}: {what}" for operator, what in sorted(wrong.items())]


def available() -> bool:
    """Returns whether there is a real GPU. The virtual GPU does not count as one."""
    return "unstall.virtual.shim.load" not in sys.modules and torch.cuda.is_available()
