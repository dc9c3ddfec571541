"""Reads and writes files with the tensors of a run (`.numbers`). Such a file has lines of JSON, one
line per tensor. Nothing in a file is executed.

The first line is a `Header`. Then comes a `Line` for each tensor, in order. The last line is an
`Ending`. If the program was killed, the file ends early.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Literal

import msgspec
import numpy as np
import torch

from unstall._version import __version__
from unstall.decoding import from_json, json_decoder
from unstall.errors import TraceError, UsageError
from unstall.rounding.judge import Errors
from unstall.rounding.operators import Place
from unstall.rounding.samples import ENDS, SUMMED, Floats, Ran, Seen

SCHEMA = "unstall.numbers/1"
_START = b'{"schema":"unstall.numbers/'
ENDING = ".numbers"
_NAMES = {each: str(each).removeprefix("torch.") for each in SUMMED}
_DTYPES = {name: each for each, name in _NAMES.items()}
_ENCODER = msgspec.json.Encoder()
_AT_ONCE = 256  # lines that are encoded before they are written
_LONGEST_LINE = 1 << 22
_LONGEST_TEXT = 200  # characters that are kept of a line of source
_MOST_LINES = 1 << 21
_MOST_DIMENSIONS = 64
_LARGEST = 1 << 32  # bytes of a file


class Header(msgspec.Struct, frozen=True):
    """The first line of a `.numbers` file: the file's schema, the versions of unstall and torch,
    and the program's name.
    """

    schema: str
    unstall: str
    torch: str
    program: str = ""


class Line(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The line of a `.numbers` file that describes one tensor of a run.

    Attributes:
        kind: "operator" (the result of an operator), "value" (a value that the program read, for
            example by `item()`), "weight" (a weight that the program wrote), or "result" (the
            result of the program).
        name: The name of the operator, the value, the weight or the result.
        file: The source file with the call of the operator.
        line: The number of the source line with the call.
        function: The function with the call.
        backward: Whether the operator belongs to the backward pass of what was called there.
        shape: The tensor's shape.
        dtype: The tensor's type, such as "float32".
        values: Some of the tensor's elements, then the sum of all elements with random signs, as
            float64.
        text: The text of the source line.
        terms: The number of terms that each element of the operator's result sums up. 0 if the
            operator has no sums.
        errors: How much rounding changes each number in `values`, as float64. None if this was not
            measured.
    """

    kind: Literal["operator", "value", "weight", "result"]
    name: str
    file: str
    line: int
    function: str
    backward: bool
    shape: tuple[int, ...]
    dtype: str
    values: bytes
    text: str = ""
    terms: int = 0
    errors: bytes | None = None


class Ending(msgspec.Struct, frozen=True):
    """The last line of a `.numbers` file.

    Attributes:
        complete: Whether the program was recorded to its end.
        device: The name of the GPU that the program used; "" if it used none.
        vary: Whether a run with random errors had a different set of values or weights than the run
            without errors.
    """

    complete: bool
    device: str
    vary: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """The content of a `.numbers` file.

    Attributes:
        header: The first line of the file.
        ending: The last line of the file.
        ran: The tensors of the run.
        errors: How much rounding changes the tensors. None if the program was not run with random
            errors.
    """

    header: Header
    ending: Ending
    ran: Ran
    errors: Errors | None


class Writer:
    """Writes the tensors of a run to a `.numbers` file, one line each.

    Raises:
        UsageError: The path already has a file of another kind.
        OSError: The file cannot be written.
    """

    def __init__(self, path: Path, program: str = "") -> None:
        if path.is_file() and not _is_recording(path):
            raise UsageError(f"{path}: is there, and no recording of numbers: it would be lost")
        self._file = path.open("wb")
        self._texts: dict[tuple[str, int], str] = {}  # of lines
        self._put([Header(SCHEMA, __version__, str(torch.__version__), program)])

    def tensors(self, several: Sequence[Seen], errors: Sequence[Floats | None] | None = None) -> None:
        of_each = errors or [None] * len(several)
        self._put(self._line(*each) for each in zip(several, of_each, strict=True))

    def _line(self, seen: Seen, errors: Floats | None) -> Line:
        place = seen.place
        text = place.text
        if text is None and (text := self._texts.get((place.file, place.line))) is None:
            text = self._texts[place.file, place.line] = place.source
        return Line(
            kind=seen.kind,  # type: ignore[arg-type]
            name=seen.name,
            file=place.file,
            line=place.line,
            function=place.function,
            backward=place.backward,
            shape=seen.shape,
            dtype=_NAMES[seen.dtype],
            values=_packed(seen.values) + struct.pack("<d", seen.total),
            text=text[:_LONGEST_TEXT],
            terms=seen.terms,
            errors=None if errors is None else _packed(errors),
        )

    def close(self, ending: Ending) -> None:
        self._put([ending])
        self._file.close()

    def _put(self, lines: Iterable[msgspec.Struct]) -> None:
        lines = iter(lines)
        while some := list(islice(lines, _AT_ONCE)):
            self._file.write(_ENCODER.encode_lines(some))


def _is_recording(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(len(_START))
    return not start or start == _START


def write(path: Path, recorded: Recorded) -> None:
    """Writes a recorded run to the `.numbers` file `path`. If the run's rounding errors are known, writes them too."""
    ran, errors = recorded.ran, recorded.errors
    writer = Writer(path, recorded.header.program)
    of_ends: Mapping[tuple[str, str], Floats | None] = errors.ends if errors else {}
    writer.tensors(ran.operators, errors.operators if errors else None)
    writer.tensors(list(ran.ends.values()), [of_ends.get(key) for key in ran.ends])
    writer.close(msgspec.structs.replace(recorded.ending, vary=errors is not None and errors.vary))


def read(path: Path) -> Recorded:
    """Reads a `.numbers` file, which `write` or `Writer` wrote.

    Raises:
        TraceError: The file is not of this kind, is too large, or is inconsistent.
        OSError: The file cannot be read.
    """
    if not path.is_file():
        raise TraceError(f"{path}: there is no such file")
    if path.stat().st_size > _LARGEST:
        raise TraceError(f"{path}: is larger than {_LARGEST >> 30} GiB")
    with path.open("rb") as file:
        lines = _lines(path, file)
        try:
            header = from_json(next(lines, b""), Header)
        except ValueError as error:  # also msgspec's, and of text that is not UTF-8
            raise TraceError(f"{path}: is no recording of numbers: {error}") from error
        if header.schema != SCHEMA:
            raise TraceError(f"{path}: is of schema {header.schema[:40]!r}, and this version reads {SCHEMA}")
        try:
            return _recorded(header, lines)
        except ValueError as error:
            raise TraceError(f"{path}: cannot be read: {error}") from error


def _recorded(header: Header, lines: Iterator[bytes]) -> Recorded:
    operators: list[tuple[Seen, Floats | None]] = []
    ends: dict[tuple[str, str], tuple[Seen, Floats | None]] = {}
    ending = Ending(complete=False, device="")
    decoder = json_decoder(Line)
    for line in lines:
        if line.startswith(b'{"complete"'):
            ending = from_json(line, Ending)
            break
        if not line.endswith(b"\n"):  # the program was killed while it wrote this
            break
        seen, errors = _seen(decoder.decode(line))
        if seen.kind == "operator":
            operators.append((seen, errors))
        else:
            ends[seen.kind, seen.name] = seen, errors
    known = any(errors is not None for _, errors in (*operators, *ends.values()))
    of_operators = tuple(errors for _, errors in operators)
    return Recorded(
        header,
        ending,
        Ran({}, tuple(seen for seen, _ in operators), {key: seen for key, (seen, _) in ends.items()}, ending.complete),
        Errors(
            of_operators if any(errors is not None for errors in of_operators) else None,
            {key: errors for key, (_, errors) in ends.items()},
            ending.vary,
        )
        if known
        else None,
    )


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    for _ in range(_MOST_LINES):
        line = file.readline(_LONGEST_LINE)
        if not line:
            return
        if len(line) == _LONGEST_LINE:
            raise TraceError(f"{path}: has a line of more than {_LONGEST_LINE >> 20} MiB")
        yield line
    raise TraceError(f"{path}: has more than {_MOST_LINES:,} lines")


def _seen(line: Line) -> tuple[Seen, Floats | None]:
    if len(line.shape) > _MOST_DIMENSIONS or not 0 <= _elements(line.shape) < 1 << 63:
        raise ValueError("a shape that no tensor has")
    values, errors = _unpacked(line.values), None if line.errors is None else _unpacked(line.errors)
    if not 0 < len(values) <= ENDS + 1 or len(values) - 1 > max(1, math.prod(line.shape)):
        raise ValueError(f"{len(values)} values of a tensor of shape {line.shape}")
    if errors is not None and len(errors) != len(values):
        raise ValueError(f"{len(errors)} errors of {len(values)} values")
    if line.dtype not in _DTYPES:
        raise ValueError(f"no type is called {line.dtype[:40]!r}")
    place = Place(line.file, line.line, line.function, line.backward, line.text)
    dtype, total = _DTYPES[line.dtype], float(values[-1])
    kept = Seen(line.kind, line.name, place, line.shape, dtype, values[:-1], total, line.terms)
    return kept, errors


def _elements(shape: tuple[int, ...]) -> int:
    return -1 if any(size < 0 for size in shape) else math.prod(shape)


def _packed(values: Floats) -> bytes:
    return values.astype("<f8", copy=False).tobytes()


def _unpacked(packed: bytes) -> Floats:
    return np.frombuffer(packed, "<f8").astype(np.float64)
