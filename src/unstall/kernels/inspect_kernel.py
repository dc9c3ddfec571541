"""`inspect_kernel`: runs a kernel on the CPU, without a GPU, and reports how the kernel uses memory."""

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

    `inspect_kernel(kernel, grid, block, a, out)` takes the place of `kernel[grid, block](a, out)`. The call needs no
    GPU and no environment variable NUMBA_ENABLE_CUDASIM. The kernel writes its results into the arrays among the
    arguments, as on a GPU. Each access to memory takes about 20 µs and each thread takes about 0.3 ms, so choose small
    sizes.

    Two accesses to one element race if different threads make them, one of them writes, and no barrier is between them.
    Races are found even if the results of this run are right. The report describes only this launch. With other
    arguments, the kernel may take other branches.

    Several threads may call `inspect_kernel` at the same time. The calls then run one after the other, because a
    process has only one simulator.

    Args:
        kernel: A function decorated with `cuda.jit`.
        grid: The number of blocks: one number, or a tuple of up to three numbers (x, y, z).
        block: The number of threads in each block: one number, or a tuple of up to three numbers (x, y, z). The product
            of the numbers is at most 1,024.
        *args: The kernel's arguments: numbers, tuples of numbers, contiguous NumPy arrays, or device arrays of Numba.
            An array may be wrapped in `cuda.In`, `cuda.Out` or `cuda.InOut`.
        shared_bytes: The size in bytes of the dynamic shared memory of each block.
        gpu: The GPU whose time is modelled: a name that `unstall gpus` lists, or the path of a file that `unstall
            calibrate` wrote.

    Returns:
        The report. Its attributes include `races`, `traffic`, `barriers` and `time`. The report can be printed and
        saved.

    Raises:
        UsageError: Numba is missing, the GPU is unknown, `grid` or `block` is not valid, `kernel` is not decorated with
            `cuda.jit`, or the kernel does not take these arguments.
        KernelError: Only some threads of a block reach a barrier, an index is out of bounds, or the kernel calls
            something that the simulator does not have.
    """
    try:
        from numba import cuda  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"inspect_kernel runs kernels by Numba, which cannot be imported ({error}): pip install numba"
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
    """Converts an argument of a kernel into a value that the simulator can use. Returns an array as a NumPy array.
    Returns a number or a tuple unchanged.

    Args:
        name: The name of the argument, for the error message.
        value: The value of the argument.

    Raises:
        UsageError: The simulator cannot use the argument.
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
