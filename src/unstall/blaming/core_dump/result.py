"""`CoreDump`: the contents of a GPU core dump, as data. Its JSON form is `unstall.core-dump/1`."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Index: TypeAlias = tuple[int, int, int]
"""Three numbers (x, y, z): the index of a block or of a thread, or a size in blocks or in threads."""


class SourceLine(msgspec.Struct, frozen=True):
    """A line of a kernel's source. The line information that the compiler wrote names it."""

    file: str
    line: int


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction of a GPU function.

    Attributes:
        function: Name of the function.
        offset: Offset of the instruction from the start of the function, in bytes.
        address: Address of the instruction on the device.
        source: The source line of the instruction. If the instruction comes from an inlined
            function, the lines that called this function follow, innermost first. Empty if the
            kernel was compiled without line information.
        warps: How many warps were at this instruction.
    """

    function: str
    offset: int
    address: int
    source: tuple[SourceLine, ...] = ()
    warps: int = 0


class DeviceException(msgspec.Struct, frozen=True, kw_only=True):
    """An exception that the device reported: an error of a kernel, such as an access to an invalid
    address.

    Attributes:
        code: The number that NVIDIA gave this kind of exception.
        name: NVIDIA's name for this kind of exception.
        words: What the exception means, in words.
        error: The CUresult that CUDA calls return after the exception.
        at: The instruction that caused the exception; None if the device does not know it.
        block: The index of the first block that had the exception; None if the block's warps had
            already ended.
        thread: In that block, the index of the first thread that had the exception; None if the
            thread's warp had already ended.
        blocks: How many blocks had the exception; 0 if the warps of these blocks had already ended.
        warps: How many warps had the exception; 0 if these warps had already ended.
        threads: How many threads had the exception; 0 if the warps of these threads had already
            ended.
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
    """A kernel launch that was running when the core dump was written.

    Attributes:
        kernel: Name of the kernel; "" if the dump does not contain the name.
        linked: The kernel's linker symbol.
        number: The number that the driver gave the launch.
        device: Index of the device.
        blocks: Size of the grid, in blocks.
        threads: Size of a block, in threads.
        resident_blocks: How many blocks of this launch were on the device. Its other blocks had
            ended or had not begun.
        resident_warps: How many warps of this launch were on the device.
        multiprocessors: How many multiprocessors ran blocks of this launch.
        exception: The exception of this launch; None if the launch had no exception.
        standing: The instructions at which the most warps were. The one with the most warps comes
            first.
        launched_by: The lines of Python, as FILE:LINE, that may have launched this kernel. They
            come from a saved result of `unstall run --blame`. Empty if no such result was read.
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
    """A GPU that the program saw: its name, its architecture, and its number of multiprocessors."""

    name: str
    architecture: str
    multiprocessors: int


class CoreDump(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU core dump: what ran on the devices when the dump was written.

    Attributes:
        schema: Name and version of the JSON form.
        file: The path of the core dump file.
        driver: Version of the driver; "" in dumps of drivers before 565.
        cuda: Version of CUDA; "" in dumps of drivers before 565.
        written_s: When the dump was written, in s since 1970; 0 in dumps of drivers before 565.
        devices: The GPUs that the program saw.
        grids: The kernel launches that were running. Launches with an exception come first.
        elsewhere: Exceptions whose kernel is not known.
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
        """The first of `grids` that had an exception; None if none of them had one."""
        return next((grid for grid in self.grids if grid.exception), None)

    @property
    def exception(self) -> DeviceException | None:
        """The exception of the failed grid. If no grid has an exception, the first one of
        `elsewhere`. None if the dump has no exception.
        """
        return self.failed.exception if self.failed else next(iter(self.elsewhere), None)
