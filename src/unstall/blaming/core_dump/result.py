"""`CoreDump`: the contents of a GPU core dump, as data. Its JSON form is `unstall.core-dump/1`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Index: TypeAlias = tuple[int, int, int]
"""x, y and z of a block or a thread, or of a size in blocks or threads."""


class SourceLine(msgspec.Struct, frozen=True):
    """A line of a kernel's source, as the compiler wrote it into the machine code."""

    file: str
    line: int


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction of a GPU function. `address`: its address on the device.

    `source`: the source line of the instruction, then the calls at which this line was inlined; empty if the kernel was
    compiled without line information. `warps`: how many warps were at this instruction.
    """

    function: str
    offset: int
    address: int
    source: tuple[SourceLine, ...] = ()
    warps: int = 0


class DeviceException(msgspec.Struct, frozen=True, kw_only=True):
    """An exception that the device reported. `name` is NVIDIA's name for it. `error` is the CUresult that CUDA returns.

    `at`: the instruction that caused the exception, if the device knows it. `block` and `thread`: the first block and
    thread that had the exception. `blocks`, `warps` and `threads`: how many had it. If the warps had already ended,
    `block` and `thread` are None, and the counts are 0.
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
    """A launch of a kernel that was running. `linked` is the kernel's linker symbol.

    `number`: the driver's number of the launch. `resident_blocks`, `resident_warps`: how many were on the device; the
    others had ended or had not begun. `standing`: the instructions at which most warps were. `launched_by`: the lines
    of a saved result that launched this kernel and whose work had not finished, as FILE:LINE.
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
    """What ran on the device when the dump was written.

    `grids`: the running kernels; those with an exception come first. `elsewhere`: exceptions of unknown kernels. The
    dumps of drivers before 565 lack `driver`, `cuda` and `written_s`.
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
        """The first grid that had an exception, or None."""
        return next((grid for grid in self.grids if grid.exception), None)

    @property
    def exception(self) -> DeviceException | None:
        """The exception of `failed`, or else the first one of `elsewhere`."""
        return self.failed.exception if self.failed else next(iter(self.elsewhere), None)
