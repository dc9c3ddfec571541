"""Records the accesses of a kernel: a `RecordedArray` is an array that reports its reads and writes to a `Recorder`."""

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
    """The thread of the kernel that runs now. `Accesses` explains its numbers, as `of_block`, `thread`, `interval`."""

    block_number: int
    thread_id: int
    interval: int


class Recorder:
    """Collects the accesses of a launch. One thread of the kernel runs at a time.

    Attributes:
        thread: The thread that runs now.
    """

    thread: RunningThread

    def __init__(self, simulator: str) -> None:
        """`simulator` is the folder of Numba's simulator. Frames of files in it do not belong to the kernel."""
        self._not_kernels = (_OURS, simulator, str(Path(np.__file__).parent))
        self._rows: list[tuple[int, ...]] = []
        self._places: dict[tuple[CodeType, int], int] = {}
        self._memories: dict[Memory, int] = {}
        self._atomic: set[int] | None = None

    def array(self, plain: np.ndarray, space: Space, name: str = "") -> RecordedArray:
        """Returns an array that shares the memory of `plain`, and records its accesses.

        If `name` is "", the name is that of the variable that holds the array when the kernel first uses it.
        """
        recorded = plain.view(RecordedArray)
        recorded.recorder, recorded.space, recorded.name = self, space, name
        recorded.whole, recorded.number = recorded, None
        return recorded

    def note(self, kind: Kind, array: RecordedArray, elements: np.ndarray) -> None:
        """Records an access to each element of the view `elements` of `array`."""
        frame = self.frame()
        if array.whole.number is None:
            array.whole.number = self._memory(array.whole, frame)
        place = self._place(frame)
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
        """Within the `with` block, all reads and writes of one element are recorded as a single atomic access."""
        self._atomic = set()
        try:
            yield
        finally:
            self._atomic = None

    def here(self) -> Place:
        """Returns the line of the kernel that runs now."""
        return _place_of(*_at(self.frame()))

    def accesses(self, grid: Dim, block: Dim) -> Accesses:
        """Returns all accesses so far."""
        columns = np.array(self._rows, np.int64).reshape(-1, len(COLUMNS)).T
        return Accesses(grid, block, [*self._memories], [_place_of(*each) for each in self._places], *columns)

    def frame(self) -> FrameType:
        """Returns the innermost frame of the kernel, or of a function that it calls."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(self._not_kernels):
            frame = frame.f_back
        assert frame is not None
        return frame

    def _place(self, frame: FrameType) -> int:
        return self._places.setdefault(_at(frame), len(self._places))

    def _memory(self, whole: RecordedArray, frame: FrameType) -> int:
        if not whole.name:
            names = (name for name, value in frame.f_locals.items() if value is whole)
            whole.name = next(names, "an array")
        order = "C" if whole.flags.c_contiguous else "F"
        memory = Memory(whole.name, whole.space, _address(whole), whole.shape, whole.itemsize, order)
        return self._memories.setdefault(memory, len(self._memories))


class RecordedArray(np.ndarray[Any, Any]):
    """An array in a kernel. Views of it record their accesses too.

    Attributes:
        recorder: The recorder to which the array reports each access.
        space: Where the array lies.
        name: The name of the array in the kernel; "" until it is known.
        whole: The array of which this array is a view. If this array is not a view, the array itself.
        number: The number of the array in the recorder; None until the kernel uses the array. Views do not have this
            attribute; their number is that of `whole`.
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
        """Returns a view of the elements at an index. A view of a single element has no dimensions."""
        parts = index if isinstance(index, tuple) else (index,)
        try:
            view = np.ndarray.__getitem__(self, parts if ... in parts else (*parts, ...))
        except IndexError as error:
            at = self.recorder.here()
            raise KernelError(
                f"{at.at}: out of bounds: {at.source!r} {does} {self.name}[{_written(parts)}], "
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


def _written(parts: tuple[Any, ...]) -> str:
    return ", ".join(str(each) for each in parts)
