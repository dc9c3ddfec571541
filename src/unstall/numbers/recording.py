"""`recording_numbers`: writes what operators return to a file, to compare it with another run's."""

from __future__ import annotations

import linecache
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from unstall.errors import UsageError
from unstall.numbers.files import ENDING, Ending, Writer
from unstall.rounding.noise import base_name, written_by
from unstall.rounding.operators import Call, Operators, Place
from unstall.rounding.samples import SAMPLES, Kept, Seen

MOST = 200_000
"""Operators that are recorded."""
_ENDS = 1024  # elements that are kept of a value or a weight, of which there may be many
_LONGEST = 60  # characters of a line by which a value is called


@contextmanager
def recording_numbers(path: str | os.PathLike[str], most: int = MOST) -> Iterator[None]:
    """While the block runs, writes what each operator of this thread returns to a file. Also those of backward passes.

    Of each result, 64 elements and a sum are kept; of values that the block reads (`loss.item()`), and of weights that
    it has written when it ends, 1,024. `unstall numbers A B` compares two such files. One of them must be of `unstall
    numbers --record`, which also knows what rounding explains.

    Args:
        path: Of the file, which ends in `.numbers`. An earlier one is replaced. A rank other than 0 adds its number.
        most: How many operators are recorded. The rest of the block runs unseen.

    Raises:
        UsageError: The file cannot be written, or another file would be lost.
    """
    recorder = Recorder(target(Path(path)), most=most)
    complete = False
    try:
        with recorder.watch:
            yield
        complete = True
    finally:
        recorder.close(complete=complete)


def target(path: Path) -> Path:
    """Returns the file of this rank.

    Raises:
        UsageError: Its name is not that of such a file.
    """
    if path.suffix != ENDING:
        raise UsageError(f"{path}: name a file that ends in {ENDING}")
    rank = os.environ.get("RANK", "0")
    return path if rank == "0" or not rank.isdecimal() else path.with_suffix(f".rank{rank}{ENDING}")


class Recorder:
    """Writes what is seen while `watch` is entered.

    Args:
        path: The file.
        most: How many operators are recorded.
        call: Calls each operator.
        program: Its name, for the file.
        when_full: Is called before each further operator.

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
        self._most, self._when_full = most, when_full
        self._process = os.getpid()
        self._operators = 0
        self._values: Counter[str] = Counter()
        self._weights: dict[int, tuple[torch.Tensor, Place]] = {}  # each with the line that wrote it last
        self._last: Seen | None = None
        try:
            self._writer = Writer(path, program)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error
        self._kept = Kept(self._write)
        self.watch = Operators(self._see, call)

    @property
    def is_full(self) -> bool:
        return self._operators >= self._most

    def close(self, *, complete: bool) -> None:
        """Ends the file. `complete`: the program was seen to its end."""
        if os.getpid() != self._process:
            return
        for number, (weight, place) in enumerate(self._weights.values(), 1):
            self._kept.keep("weight", str(number), place, weight, _ENDS)
        self._kept.flush()
        if not self._weights and not self._values and self._last is not None:
            seen = self._last
            self._writer.tensor(Seen("result", "1", seen.place, seen.shape, seen.dtype, seen.values, seen.total))
        used = torch.cuda.is_available() and torch.cuda.is_initialized()  # or this would initialise it
        self._writer.close(Ending(complete and not self.is_full, torch.cuda.get_device_name() if used else ""))

    def _write(self, seen: Seen) -> None:
        if seen.kind == "operator":
            self._last = seen
        self._writer.tensor(seen)

    def _see(self, func: Any, args: tuple[Any, ...], place: Place, result: Any) -> None:
        if os.getpid() != self._process:  # in a process that was forked
            return
        if self.is_full:
            self._when_full()
            return
        self._operators += 1
        if base_name(func) == "_local_scalar_dense":
            line = linecache.getline(place.file, place.line).strip()[:_LONGEST]
            self._values[line] += 1
            self._kept.keep("value", f"{self._values[line]} of {line}", place, args[0], _ENDS)
            return
        for weight in written_by(func, args):
            if weight.requires_grad and weight.is_leaf:
                self._weights[id(weight)] = weight, place
                self._kept.keep("operator", base_name(func), place, weight, SAMPLES)
                result = None
        self._kept.of_operator(func, args, place, result)
