"""`inspect_kernel`: runs a kernel without a GPU and says what it does to memory."""

from __future__ import annotations

import inspect
import numbers
import threading
from types import FunctionType
from typing import Any

import numpy as np

from unstall.errors import UsageError
from unstall.kernels.accesses import Dim
from unstall.kernels.model import modelled
from unstall.kernels.races import find
from unstall.kernels.report import KernelReport
from unstall.kernels.traffic import count

_MOST_THREADS = 1024
_turn = threading.RLock()


def inspect_kernel(
    kernel: Any,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *args: Any,
    shared_bytes: int = 0,
    gpu: str = "h200",
) -> KernelReport:
    """Runs a CUDA kernel written in Numba on the CPU, by Numba's simulator, and records each access to memory.

    `inspect_kernel(kernel, grid, block, a, out)` takes the place of `kernel[grid, block](a, out)`. It needs no GPU, and
    no NUMBA_ENABLE_CUDASIM. The kernel writes into the arrays, as on a GPU. Each access takes about 20 us and each
    thread 0.3 ms, so choose small sizes.

    Races are found even if the results are right: two accesses race if no barrier orders them. The report is only about
    this launch. With other arguments, the kernel may take other branches.

    Several threads may call it at the same time. One thread waits for the other, because Numba's
    simulator belongs to the process.

    Args:
        kernel: A function decorated with `cuda.jit`.
        grid: The number of blocks: a number, or up to three (x, y, z).
        block: The number of threads in each block, given in the same way; at most 1,024 in all.
        *args: The kernel's arguments: numbers, tuples of numbers, contiguous NumPy arrays, or device arrays of Numba.
            An array may be wrapped in `cuda.In`, `cuda.Out` or `cuda.InOut`.
        shared_bytes: The dynamic shared memory.
        gpu: The GPU for the model of the time: a name of `unstall gpus`, or a file of `unstall calibrate`.

    Returns:
        The report. It has `races`, `traffic`, `barriers` and `time`, and can be printed and saved.

    Raises:
        UsageError: Numba is missing, the GPU is unknown, or an argument is of another kind.
        KernelError: Not all threads of a block reach a barrier, an index is out of bounds, or the kernel calls
            something that the simulator does not have.
    """
    try:
        from numba import cuda  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"inspect_kernel runs kernels by Numba, which cannot be imported ({error}): pip install 'unstall[course]'"
        ) from None
    from unstall.kernels.simulated import run

    function = getattr(kernel, "py_func", None)
    if not isinstance(function, FunctionType):
        raise UsageError(f"inspect_kernel takes a function that cuda.jit decorates, not {_kind(kernel)}")
    names = list(inspect.signature(function).parameters)
    if len(args) != len(names):
        raise UsageError(f"{function.__name__} takes {len(names)} arguments ({', '.join(names)}), and got {len(args)}")
    blocks, threads = _dim("grid", grid), _dim("block", block)
    if threads[0] * threads[1] * threads[2] > _MOST_THREADS:
        raise UsageError(
            f"block: {threads} are more than {_MOST_THREADS:,} threads, the most that a GPU runs in a block"
        )
    given, on_device = [], []
    for name, value in zip(names, args, strict=True):
        plain = _on_host(name, value)
        given.append((name, plain))
        if hasattr(value, "copy_to_device"):
            on_device.append((value, plain))
    with _turn:
        accesses = run(function, blocks, threads, shared_bytes, given)
    for device_array, plain in on_device:
        device_array.copy_to_device(plain)
    traffic = count(accesses)
    return KernelReport(
        kernel=function.__name__,
        file=function.__code__.co_filename,
        line=function.__code__.co_firstlineno,
        grid=blocks,
        block=threads,
        barriers=int(accesses.interval.max(initial=0)),
        races=find(accesses),
        traffic=traffic,
        time=modelled(traffic, blocks, gpu),
    )


def _dim(name: str, given: int | tuple[int, ...]) -> Dim:
    sizes = given if isinstance(given, tuple) else (given,)
    whole = all(isinstance(each, numbers.Integral) and each > 0 for each in sizes)
    if not 1 <= len(sizes) <= 3 or not whole:
        raise UsageError(f"{name}: {given!r} is neither a number from 1 on nor a tuple of up to three")
    x, y, z = (*(int(each) for each in sizes), 1, 1)[:3]
    return x, y, z


def _on_host(name: str, value: Any) -> Any:
    """Converts an argument for the simulator: an array becomes a NumPy array. Other values stay unchanged.

    Raises UsageError if the simulator cannot take the argument.
    """
    from numba.cuda.args import ArgHint, In

    if isinstance(value, In):
        return np.copy(_on_host(name, value.value))
    if isinstance(value, ArgHint):
        return _on_host(name, value.value)
    if hasattr(value, "copy_to_host"):
        return value.copy_to_host()
    if isinstance(value, np.ndarray) and value.ndim:
        if not (value.flags.c_contiguous or value.flags.f_contiguous):
            raise UsageError(f"argument {name}: the array is not contiguous: give numpy.ascontiguousarray of it")
        if value.dtype.fields or value.dtype.hasobject:
            raise UsageError(f"argument {name}: inspect_kernel follows arrays of numbers, not of {value.dtype}")
        return value
    if isinstance(value, (numbers.Number, np.generic, tuple)):
        return value
    raise UsageError(f"argument {name}: {_kind(value)} is neither a NumPy array nor a number")


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"
