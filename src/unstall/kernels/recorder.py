"""Records the memory accesses of a kernel. A `RecordedArray` is an array that reports each read and write of its
elements to a `Recorder`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Protocol

import numpy as np

from unstall.errors import KernelError
from unstall.kernels.accesses import COLUMNS, Accesses, Dim, Kind, Memory, Place, Space

_OURS = str(Path(__file__).parent)


class RunningThread(Protocol):
    """The thread of the kernel that is running now.

    Attributes:
        block_number: The number of the thread's block, as in `Accesses.of_block`.
        thread_id: The number of the thread in its block, as in `Accesses.thread`.
        interval: The number of barriers that the thread has passed.
    """

    block_number: int
    thread_id: int
    interval: int


class Recorder:
    """Collects the memory accesses of one kernel launch. The threads of the kernel run one at a time.

    Attributes:
        thread: The thread of the kernel that is running now.
    """

    thread: RunningThread

    def __init__(self, simulator: str) -> None:
        """`simulator` is the folder of Numba's simulator. Code in this folder does not count as code of the kernel."""
        self._not_kernels = (_OURS, simulator, str(Path(np.__file__).parent))
        self._rows: list[tuple[int, ...]] = []
        self._places: dict[tuple[CodeType, int], int] = {}
        self._memories: dict[Memory, int] = {}
        self._atomic: set[int] | None = None

    def array(self, plain: np.ndarray, space: Space, name: str = "") -> RecordedArray:
        """Returns an array that shares the memory of `plain` and reports accesses of its elements to this recorder.

        Args:
            plain: A NumPy array.
            space: The memory that the array stands for: global memory, or the shared memory of a block.
            name: The name of the array in the kernel. If "", the array gets the name of the variable that holds it when
                the kernel first uses it.
        """
        recorded = plain.view(RecordedArray)
        recorded.recorder, recorded.space, recorded.name = self, space, name
        recorded.whole, recorded.number = recorded, None
        return recorded

    def note(self, kind: Kind, array: RecordedArray, elements: np.ndarray) -> None:
        """Records one access for each element in `elements`.

        Args:
            kind: The kind of access: read, write or atomic update.
            array: The array that is accessed.
            elements: A view of `array` that contains the accessed elements.
        """
        frame = self.frame()
        if array.whole.number is None:
            array.whole.number = self._memory(array.whole, frame)
        place = self._places.setdefault(_at(frame), len(self._places))
        thread = self.thread
        for address in _addresses(elements):
            if self._atomic is not None:
                if address in self._atomic:
                    continue
                self._atomic.add(address)
                kind = Kind.ATOMIC
            self._rows.append(
                (
                    array.whole.number,
                    address,
                    elements.itemsize,
                    kind,
                    place,
                    thread.block_number,
                    thread.thread_id,
                    thread.interval,
                )
            )

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """During the block, all reads and writes of one element are recorded as a single atomic update."""
        self._atomic = set()
        try:
            yield
        finally:
            self._atomic = None

    def here(self) -> Place:
        """Returns the line of source code that the kernel is executing: a line of the kernel, or of a function that the
        kernel calls."""
        return _place_of(*_at(self.frame()))

    def accesses(self, grid: Dim, block: Dim) -> Accesses:
        """Returns all accesses that have been recorded so far.

        Args:
            grid: The number of blocks of the launch, as (x, y, z).
            block: The number of threads in each block, as (x, y, z).
        """
        columns = np.array(self._rows, np.int64).reshape(-1, len(COLUMNS)).T
        return Accesses(grid, block, [*self._memories], [_place_of(*each) for each in self._places], *columns)

    def frame(self) -> FrameType:
        """Returns the Python frame of the kernel. If the kernel is calling a function of the user, returns the frame of
        this function, or of the innermost one if such calls are nested."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(self._not_kernels):
            frame = frame.f_back
        assert frame is not None
        return frame

    def _memory(self, whole: RecordedArray, frame: FrameType) -> int:
        if not whole.name:
            names = (name for name, value in frame.f_locals.items() if value is whole)
            whole.name = next(names, "an array")
        order = "C" if whole.flags.c_contiguous else "F"
        memory = Memory(whole.name, whole.space, _address(whole), whole.shape, whole.itemsize, order)
        return self._memories.setdefault(memory, len(self._memories))


class RecordedArray(np.ndarray[Any, Any]):
    """A NumPy array that a kernel uses. The array and all views of it report accesses of their elements to a
    `Recorder`.

    Attributes:
        recorder: The recorder that gets the accesses.
        space: The memory that the array stands for: global memory, or the shared memory of a block.
        name: The name of the array in the kernel. "" until the name is known.
        whole: The array of which this array is a view. If this array is not a view, the array itself.
        number: The number that the recorder has given to this array. None until the kernel uses the array. Views do not
            have this attribute. A view uses the `number` of `whole`.
    """

    recorder: Recorder
    space: Space
    name: str
    whole: RecordedArray
    number: int | None

    def __array_finalize__(self, made_from: Any) -> None:
        if isinstance(made_from, RecordedArray) and hasattr(made_from, "whole"):
            self.recorder, self.space, self.name = made_from.recorder, made_from.space, made_from.name
            self.whole = made_from.whole

    def __getitem__(self, index: Any) -> Any:
        view = self._view(index, "reads")
        if view.ndim:
            return view
        self.recorder.note(Kind.READ, self, view)
        return np.ndarray.__getitem__(view, ())

    def __setitem__(self, index: Any, value: Any) -> None:
        view = self._view(index, "writes")
        if isinstance(value, RecordedArray):
            value.recorder.note(Kind.READ, value, value)
        self.recorder.note(Kind.WRITE, self, view)
        np.ndarray.__setitem__(view, ..., _plain(value))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        for each in inputs:
            if isinstance(each, RecordedArray):
                each.recorder.note(Kind.READ, each, each)
        if "out" in options:
            for each in options["out"]:
                if isinstance(each, RecordedArray):
                    each.recorder.note(Kind.WRITE, each, each)
            options["out"] = tuple(map(_plain, options["out"]))
        return getattr(ufunc, method)(*map(_plain, inputs), **options)

    def _view(self, index: Any, does: str) -> RecordedArray:
        """Returns a view of the elements that `index` selects. A view of a single element has no dimensions.

        Args:
            index: The index in the kernel's source code, such as `a[index]`.
            does: "reads" or "writes", for the error message.

        Raises:
            KernelError: The index is out of bounds, or is an array of indices.
        """
        parts = index if isinstance(index, tuple) else (index,)
        try:
            view = np.ndarray.__getitem__(self, parts if ... in parts else (*parts, ...))
        except IndexError as error:
            at = self.recorder.here()
            raise KernelError(
                f"{at.at}: out of bounds: {at.source!r} {does} {self.name}[{', '.join(map(str, parts))}], "
                f"whose shape is {self.shape}, in {self.recorder.thread} ({error})"
            ) from None
        if not isinstance(view, RecordedArray) or not np.may_share_memory(view, self):
            at = self.recorder.here()
            raise KernelError(
                f"{at.at}: {at.source!r} {does} {self.name} by an array of indices. Kernels index by numbers and slices"
            )
        return view


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, RecordedArray) else value


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _addresses(elements: np.ndarray) -> list[int]:
    if not elements.ndim:
        return [_address(elements)]
    offsets = np.zeros(elements.shape, np.int64)
    for axis, (length, stride) in enumerate(zip(elements.shape, elements.strides, strict=True)):
        offsets += (np.arange(length) * stride).reshape(-1, *[1] * (elements.ndim - 1 - axis))
    return [int(each) for each in (_address(elements) + offsets).ravel()]


def _at(frame: FrameType) -> tuple[CodeType, int]:
    return frame.f_code, frame.f_lineno


def _place_of(code: CodeType, line: int) -> Place:
    return Place(code.co_filename, line, code.co_name)
