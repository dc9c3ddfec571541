"""`with unstall.blame():` finds the line whose GPU work failed, from within a program."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from unstall.blaming.child import RING, look, start
from unstall.blaming.document import Blame
from unstall.blaming.fault_sources import FaultsOf, begin_block
from unstall.blaming.result import BlameResult
from unstall.blaming.ring import read_ring
from unstall.blaming.supervise import make_folder, with_races
from unstall.blaming.tensors import tensors_of
from unstall.blaming.verdict import verdict
from unstall.errors import UsageError


def blame(*, races: bool = False) -> Blaming:
    """Finds the line whose GPU work failed, if a CUDA error is raised in a `with` block.

    A note that names the line is added to the exception. The exception is not suppressed. Nothing
    is printed.

    Only one thread at a time may be in such a block. If another such block is active, entering the
    block raises UsageError.

    Args:
        races: Also look for races between streams, and between device and host. This slows down
            each operator on the host.

    Returns:
        The context manager. It can be entered only once. After the block, its attribute `report` is
        a `Blame`: a report that can be printed and saved.
    """
    return Blaming(races)


class Blaming:
    """The context manager that `blame()` returns. It can be used for one `with` block.

    Attributes:
        report: None until the block has ended. After that, the report of the fault (the error of
            the device) in the block, or a report that says that no fault was seen.
    """

    def __init__(self, races: bool) -> None:
        self._races = races
        self.report: Blame | None = None
        self._folder: Path | None = None
        self._faults: FaultsOf | None = None  # who knows of faults instead of the driver
        self._undo: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        """Starts to record the work that the `with` block puts on CUDA streams.

        Raises:
            UsageError: This context manager was entered before, or another block of `blame()` is
                active.
            UnstallError: unstall cannot find the lines that make CUDA calls, for example because it
                does not support this version of Python.
        """
        if self._folder is not None:
            raise UsageError("blame() is for one block: call it again for the next")
        with ExitStack() as undo:
            try:
                folder = make_folder()
                undo.callback(shutil.rmtree, folder, ignore_errors=True)
                stop = start(folder, races=self._races)
            except OSError as error:
                if error.errno == errno.EBUSY:
                    raise UsageError("another block of blame() is active in this process: end it first") from error
                raise UsageError(f"blame() cannot begin: {error.strerror or error}") from error
            undo.callback(stop)
            self._faults = begin_block()
            undo.pop_all()
        self._folder, self._undo = folder, stop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the recording, and sets `report`. If the device had an error in the `with` block,
        adds a note to the block's exception.
        """
        assert self._folder is not None
        try:
            result = self._verdict(self._folder, failed=error is not None)
            self._undo()
            if self._races:
                result = with_races(result, self._folder)
        finally:
            self._undo()
            shutil.rmtree(self._folder, ignore_errors=True)
        where = result.suspects[0].where if result.suspects else None
        if where is not None and trace is not None:
            result = msgspec.structs.replace(result, tensors=tensors_of(where, trace))
        self.report = Blame(result)
        if error is not None and result.error:
            error.add_note(f"unstall: {self.report.document().summary}")

    def _verdict(self, folder: Path, *, failed: bool) -> BlameResult:
        if self._faults is not None:
            return self._faults() if failed else BlameResult()
        if failed:
            look()
        return verdict(read_ring(folder / RING))
