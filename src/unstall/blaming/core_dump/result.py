"""`CoreDump`: what a dump tells, as data. Its JSON form is `unstall.core-dump/1`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Index: TypeAlias = tuple[int, int, int]
"""x, y and z of a block or a thread, or of a size in blocks or threads."""


class SourceLine(msgspec.Struct, frozen=True):
    """A line of a kernel's source, as the compiler noted it."""

    file: str
    line: int


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction of a function on the device. `address`: where it was loaded.

    `source`: the line that it was made from, then the lines at which that line's function was inlined; empty if the
    kernel was compiled without lines. `warps`: how many stood there.
    """

    function: str
    offset: int
    address: int
    source: tuple[SourceLine, ...] = ()
    warps: int = 0


class DeviceException(msgspec.Struct, frozen=True, kw_only=True):
    """What the device reported. `name` is NVIDIA's, `error` the number of CUDA's error for it.

    `at`: the instruction, if the device knows it. `block` and `thread`: the first of those that it happened in. The
    counts are 0, and these None, if the warps had already ended.
    """

    code: int
    name: str
    words: str
    error: int
    at: Instruction | None = None
    block: Index | None = None
    thread: Index | None = None
    blocks: int = 0
    warps: int = 0
    threads: int = 0


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that was running. `linked` is its name as it is linked.

    `number`: the driver's own. `resident_blocks`, `resident_warps`: how many were on the device; the others had ended
    or had not begun. `standing`: the instructions at which most warps stood. `launched_by`: lines of a saved result
    whose work had not finished, and that launched this kernel, as FILE:LINE.
    """

    kernel: str
    linked: str = ""
    number: int = 0
    device: int = 0
    blocks: Index = (0, 0, 0)
    threads: Index = (0, 0, 0)
    resident_blocks: int = 0
    resident_warps: int = 0
    multiprocessors: int = 0
    exception: DeviceException | None = None
    standing: tuple[Instruction, ...] = ()
    launched_by: tuple[str, ...] = ()


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that the program saw."""

    name: str
    architecture: str
    multiprocessors: int


class CoreDump(msgspec.Struct, frozen=True, kw_only=True):
    """What ran when the dump was written. `grids`: those with an exception first. `elsewhere`: exceptions of which the
    device did not say in which grid they were. Drivers before 565 do not tell `driver`, `cuda` and `written_s`.
    """

    schema: Literal["unstall.core-dump/1"] = "unstall.core-dump/1"
    file: str = ""
    driver: str = ""
    cuda: str = ""
    written_s: int = 0
    devices: tuple[Device, ...] = ()
    grids: tuple[Grid, ...] = ()
    elsewhere: tuple[DeviceException, ...] = ()

    @property
    def failed(self) -> Grid | None:
        """The first grid that had an exception."""
        return next((grid for grid in self.grids if grid.exception), None)

    @property
    def exception(self) -> DeviceException | None:
        """The first exception."""
        return self.failed.exception if self.failed else next(iter(self.elsewhere), None)
