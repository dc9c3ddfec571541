"""Runs a kernel with parts of Numba's CUDA simulator. The kernel's arrays record accesses, and only one thread of the
kernel runs at a time.

Numba's own simulator runs the threads of a block concurrently. When each thread has ended or waits at a barrier,
Numba's simulator lets all waiting threads continue, even if they wait at different barriers. This module instead runs
one thread of a block at a time, up to the thread's next barrier. So every run executes the same order, and a barrier
that only some of the threads reach is detected.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numba import cuda, types
from numba.cuda.simulator import kernel as simulator
from numba.cuda.simulator import kernelapi
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray
from numba.np.numpy_support import as_dtype

from unstall.errors import KernelError
from unstall.guest.patching import wrap
from unstall.kernels.accesses import Accesses, Dim, Place, Space, position
from unstall.kernels.recorder import RecordedArray, Recorder


def run(
    function: FunctionType, grid: Dim, block: Dim, shared_bytes: int, arguments: Sequence[tuple[str, Any]]
) -> Accesses:
    """Runs the Python function of a kernel once for each thread of a grid. The function writes its results into the
    arrays among `arguments`.

    Args:
        function: The Python function that `cuda.jit` decorates.
        grid: The number of blocks, as (x, y, z).
        block: The number of threads in each block, as (x, y, z).
        shared_bytes: The size in bytes of the dynamic shared memory of each block.
        arguments: A pair (name, value) for each argument of the function. Arrays must be NumPy arrays.

    Returns:
        All memory accesses that the threads made.

    Raises:
        KernelError: Only some threads of a block reach a barrier, an index is out of bounds, or the kernel calls
            something that the simulator does not have.
    """
    recorder = Recorder(str(Path(simulator.__file__).parent))
    module = _Module(grid, block, shared_bytes, recorder)
    given = [
        simulator.FakeWithinKernelCUDAArray(FakeCUDAArray(recorder.array(value, Space.GLOBAL, name)))
        if isinstance(value, np.ndarray)
        else value
        for name, value in arguments
    ]
    with ExitStack() as stack:
        _follow_calls(module, stack)
        _swap_module(function, module, stack)
        for number in range(int(np.prod(grid))):
            _Block(function, grid, block, number, recorder).run(position(number, grid), *given)
    return recorder.accesses(grid, block)


def _follow_calls(module: _Module, stack: ExitStack) -> None:
    """Lets the kernel call device functions, which are decorated with `cuda.jit(device=True)`. Such a call then runs
    the Python code of the device function, with `module` in place of Numba's module `cuda`. When `stack` is closed,
    device functions work as before."""
    swapped: set[int] = set()

    def call(original: Callable[..., Any], called: Any, *args: Any) -> Any:
        function = called.py_func
        if id(function.__globals__) not in swapped:
            swapped.add(id(function.__globals__))
            _swap_module(function, module, stack)
        return function(*args)

    decorated = type(cuda.jit(_follow_calls))  # it depends on NUMBA_ENABLE_CUDASIM
    stack.callback(wrap(decorated, "__call__", call))


def _swap_module(function: FunctionType, module: _Module, stack: ExitStack) -> None:
    """Replaces Numba's module `cuda` by `module` in the global variables of `function`, until `stack` is closed."""
    stack.enter_context(simulator.swapped_cuda_module(function, module))


class _Abandoned(BaseException):
    """An exception that ends a thread of the kernel after another thread of its block has failed."""


class _Thread(simulator.BlockThread):  # type: ignore[misc]
    """A thread of the kernel. The thread's code runs only during a call of `advance`.

    Attributes:
        block_number: The number of the thread's block, as in `Accesses.of_block`.
        interval: The number of barriers that the thread has passed.
        barrier: The line of source code with the barrier at which the thread waits. None if the thread does not wait at
            a barrier.
    """

    def __init__(self, function: Callable[[], None], block: _Block, of_block: Dim, at: Dim) -> None:
        super().__init__(function, block, of_block, at, False)
        self._kernel, self._recorder = function, block.recorder
        self._turn, self._turn_over = threading.Semaphore(0), threading.Semaphore(0)
        self.block_number = block.number
        self.interval = 0
        self.barrier: Place | None = None

    def advance(self) -> None:
        """Runs the thread until its next barrier or until its end. If the code of the kernel raises an exception,
        `advance` raises the same exception."""
        self.barrier = None
        self._recorder.thread = self
        self._turn.release()
        self._turn_over.acquire()
        if self.exception is not None:
            self.exception.add_note(f"in {self}")
            raise self.exception

    def __str__(self) -> str:
        return f"thread {_written(self.threadIdx)} of block {_written(self.blockIdx)}"

    def abandon(self) -> None:
        self.abort = True
        self._turn.release()

    def run(self) -> None:
        self._turn.acquire()
        try:
            if not self.abort:
                self._kernel()
        except _Abandoned:
            pass
        except BaseException as error:
            self.exception = error
        finally:
            self._turn_over.release()

    def syncthreads(self) -> None:
        self.barrier = self._recorder.here()
        self._turn_over.release()
        self._turn.acquire()
        if self.abort:
            raise _Abandoned
        self.interval += 1


class _Block(simulator.BlockManager):  # type: ignore[misc]
    """A block of the kernel. `run` runs the threads of the block, one at a time."""

    def __init__(self, function: FunctionType, grid: Dim, block: Dim, number: int, recorder: Recorder) -> None:
        super().__init__(function, grid, block, False)
        self.number, self.recorder = number, recorder

    def run(self, at: Dim, *args: Any) -> None:
        size = self._block_dim
        threads = [
            _Thread(lambda: self._f(*args), self, at, position(each, size)) for each in range(int(np.prod(size)))
        ]
        for thread in threads:
            thread.start()
        waiting = threads
        try:
            while waiting:
                for thread in waiting:
                    thread.advance()
                waiting = [thread for thread in threads if thread.barrier is not None]
                _check(threads, waiting)
        finally:
            for thread in threads:
                thread.abandon()


def _check(threads: Sequence[_Thread], waiting: Sequence[_Thread]) -> None:
    """Raises KernelError if some thread of a block waits at a barrier and not all threads of the block wait at the same
    barrier.

    Args:
        threads: All threads of the block.
        waiting: The threads of the block that wait at a barrier.
    """
    if not waiting:
        return
    first = waiting[0]
    barrier = first.barrier
    other = next((thread for thread in threads if thread.barrier != barrier), None)
    if other is None or barrier is None:
        return
    reached = sum(thread.barrier == barrier for thread in threads)
    instead = "has returned" if other.barrier is None else f"waits at line {other.barrier.line}"
    raise KernelError(
        f"{barrier.at}: only {reached:,} of {len(threads):,} threads of block "
        f"{_written(first.blockIdx)} reach {barrier.source!r}. Thread {_written(first.threadIdx)} waits there, thread "
        f"{_written(other.threadIdx)} {instead}. All threads of a block must reach the same barrier: move it out of "
        "the branch or loop that only some of them enter"
    )


class _Module(kernelapi.FakeCUDAModule):  # type: ignore[misc]
    """An object that takes the place of Numba's module `cuda` in the code of the kernel."""

    def __init__(self, grid: Dim, block: Dim, shared_bytes: int, recorder: Recorder) -> None:
        super().__init__(grid, block, shared_bytes)
        self._recorder = recorder
        self._shared = _Shared(shared_bytes, recorder)
        self._atomic = _Atomic(recorder)

    def __getattr__(self, name: str) -> Any:
        at = self._recorder.here()
        raise KernelError(f"{at.at}: Numba's simulator has no cuda.{name}, so this kernel cannot be inspected")


class _Shared(kernelapi.FakeCUDAShared):  # type: ignore[misc]
    """An object that takes the place of `cuda.shared` in the code of the kernel. A call of `array` at one position in
    the code returns the same array in all blocks. The blocks can share it because they run one after the other."""

    def __init__(self, size_bytes: int, recorder: Recorder) -> None:
        super().__init__(size_bytes)
        self._recorder = recorder
        self._arrays: dict[tuple[CodeType, int], RecordedArray] = {}

    def array(self, shape: Any, dtype: Any) -> RecordedArray:
        frame = self._recorder.frame()
        call = frame.f_code, frame.f_lasti
        if call not in self._arrays:
            of = as_dtype(dtype) if isinstance(dtype, types.Type) else np.dtype(dtype)
            plain = np.empty(shape, of) if shape else super().array(shape, of)  # 0: dynamic shared memory
            self._arrays[call] = self._recorder.array(plain, Space.SHARED)
        return self._arrays[call]


class _Atomic:
    """An object that takes the place of `cuda.atomic` in the code of the kernel. Each call of one of its functions is
    recorded as an atomic update."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._plain = recorder, kernelapi.FakeCUDAAtomic()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._plain, name)

        def call(*args: Any) -> Any:
            with self._recorder.atomic():
                return function(*args)

        return call


def _written(at: Any) -> str:
    return f"({at.x}, {at.y}, {at.z})"
