"""`recording_numbers`: writes the results of operators to a file, so that they can be compared with
those of another run.
"""

from __future__ import annotations

import linecache
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from unstall.errors import UsageError
from unstall.numbers.files import ENDING, Ending, Writer
from unstall.rounding.facts import facts_of, written_by
from unstall.rounding.operators import Call, Operators, Place
from unstall.rounding.samples import Kept, Seen, is_kept

MOST = 200_000
"""The largest number of operators to record, by default."""
_ENDS = 1024  # elements that are kept of a value or a weight, of which there may be many
_LONGEST = 60  # characters of a line by which a value is called


@contextmanager
def recording_numbers(path: str | os.PathLike[str], most: int = MOST) -> Iterator[None]:
    """Returns a context manager that writes the results of operators to a file. It writes those
    that the current thread calls within the block, and those of backward passes.

    The file gets 64 elements and a sum of each result. It gets 1,024 elements of each value that
    the block reads (for example by `loss.item()`), and of each weight that the block writes.
    `unstall numbers A B` compares two such files. One of the two files must come from `unstall
    numbers --record`, which also measures the effect of rounding. If the program has
    `recording_numbers` blocks, this command records only these blocks, and does not write `path`.

    Several threads may record at the same time, each to a file of its own.

    Args:
        path: The file. Its name ends in `.numbers`. An earlier recording is replaced. On every rank
            except rank 0, the rank's number is added to the name.
        most: The largest number of operators to record. The remaining operators of the block run
            without recording.

    Raises:
        UsageError: The file cannot be written, or it would replace a file of another kind.
    """
    if _of_process:
        with _of_process[0].only_here():
            yield
        return
    recorder = Recorder(target(Path(path)), most=most)
    complete = False
    try:
        with recorder.watch:
            yield
        complete = True
    finally:
        recorder.close(complete=complete)


_of_process: list[Recorder] = []
"""The recorder of the whole process, as a list of one element, if `unstall numbers` runs the
program. An empty list if it does not.
"""


def record_process(recorder: Recorder) -> None:
    """Makes `recorder` record the program's `recording_numbers` blocks, in place of the files that
    these blocks name.

    The caller must have entered the context manager `recorder.watch`.
    """
    _of_process.append(recorder)


def target(path: Path) -> Path:
    """Returns the file to which this process writes, by its rank: `path` on rank 0. On another
    rank, the name of the file contains the rank.

    Raises:
        UsageError: The name of `path` does not end in `.numbers`.
    """
    if path.suffix != ENDING:
        raise UsageError(f"{path}: name a file that ends in {ENDING}")
    rank = os.environ.get("RANK", "0")
    return path if rank == "0" or not rank.isdecimal() else path.with_suffix(f".rank{rank}{ENDING}")


class Recorder:
    """Writes the results of operators to a file, within the block of its context manager `watch`.

    Args:
        path: The file.
        most: The largest number of operators to record.
        call: A function that calls each operator. None for a plain call.
        program: The program's name, for the file.
        when_full: A function that is called for each operator that is not recorded because `most`
            operators are recorded already.

    Raises:
        UsageError: The file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        most: int,
        call: Call | None = None,
        program: str = "",
        when_full: Callable[[], None] = lambda: None,
    ) -> None:
        self._path, self._program = path, program
        self._most, self._when_full = most, when_full
        self._process = os.getpid()
        self._blocks = 0  # of the program, that are entered
        self._only_blocks = False
        self._begin()
        self.watch = Operators(self._see, call)

    def _begin(self) -> None:
        self._operators = 0
        self._values: Counter[str] = Counter()
        self._weights: dict[int, tuple[str, weakref.ref[torch.Tensor]]] = {}  # numbers of weights that were written
        self._count = 0  # of weights
        self._failed: OSError | None = None
        self._writes: dict[int, str] = {}  # numbers of the weights among the tensors that are kept, by their place
        self._written: dict[str, Seen] = {}  # each weight as it was last
        self._handed_over = 0
        self._last: Seen | None = None
        self._kept = Kept(self._write)
        try:
            self._writer = Writer(self._path, self._program)
        except OSError as error:
            raise self._not_written(error) from error

    @contextmanager
    def only_here(self) -> Iterator[None]:
        """Returns a context manager for a block of the program that is to be recorded. There may be
        several such blocks.

        When the first block is entered, everything that was recorded before is discarded. From then
        on, operators outside of these blocks are not recorded.
        """
        if not self._only_blocks:
            self._only_blocks = True
            self._begin()
        self._blocks += 1
        try:
            yield
        finally:
            self._blocks -= 1

    @property
    def is_full(self) -> bool:
        return self._operators >= self._most

    def close(self, *, complete: bool) -> None:
        """Completes the file, and closes it. `complete` says whether the program was recorded to
        its end.

        Raises:
            UsageError: The file could not be written.
        """
        if os.getpid() != self._process:
            return
        try:
            self._close(complete=complete)
        except OSError as error:
            raise self._not_written(error) from error
        if self._failed is not None:
            raise self._not_written(self._failed)

    def _not_written(self, error: OSError) -> UsageError:
        return UsageError(f"{self._path}: cannot be written: {error.strerror or error}")

    def _close(self, *, complete: bool) -> None:
        self._kept.flush()
        self._writer.tensors([replace(seen, kind="weight", name=number) for number, seen in self._written.items()])
        is_whole = complete and not self.is_full
        if is_whole and not self._count and not self._values and self._last is not None:
            self._writer.tensors([replace(self._last, kind="result", name="1")])
        used = torch.cuda.is_available() and torch.cuda.is_initialized()  # or this would initialise it
        self._writer.close(Ending(is_whole, torch.cuda.get_device_name() if used else ""))

    def _number(self, weight: torch.Tensor) -> str:
        known = self._weights.get(id(weight))
        if known is None or known[1]() is not weight:  # another one had this id
            self._count += 1
            known = self._weights[id(weight)] = str(self._count), weakref.ref(weight)
        return known[0]

    def _write(self, several: list[Seen]) -> None:
        for seen in several:
            number = self._writes.pop(self._handed_over, None)
            self._handed_over += 1
            if number is not None:
                self._written[number] = seen
            if seen.kind == "operator":
                self._last = seen
        if self._failed is None:
            try:
                self._writer.tensors(several)
            except OSError as error:  # the program goes on
                self._failed = error

    def _see(self, func: Any, args: tuple[Any, ...], place: Place, result: Any) -> None:
        if os.getpid() != self._process or (self._only_blocks and not self._blocks):  # or in a process that was forked
            return
        if self._failed is not None:
            return
        if self.is_full:
            self._when_full()
            return
        self._operators += 1
        name = facts_of(func).name
        if name == "_local_scalar_dense":
            line = linecache.getline(place.file, place.line).strip()[:_LONGEST]
            self._values[line] += 1
            self._kept.keep("value", f"{self._values[line]} of {line}", place, args[0], _ENDS)
            return
        weights = [each for each in written_by(func, args, {}) if each.requires_grad and each.is_leaf]
        if not weights:
            self._kept.of_operator(func, args, place, result)
        elif kept := list(filter(is_kept, weights)):
            self._writes |= dict(enumerate(map(self._number, kept), len(self._kept)))
            self._kept.keep_all("operator", name, place, kept, _ENDS)
