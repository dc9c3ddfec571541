"""`BlameResult`: the fault of a program, as data. Its JSON form is `unstall.blame/1`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from unstall.blaming.core_dump.result import CoreDump
from unstall.errors import TraceError

_LARGEST_BYTES = 1 << 26


class _Schema(msgspec.Struct):
    schema: str


class Line(msgspec.Struct, frozen=True):
    """A line of Python, and what stands there if the file could be read."""

    file: str
    line: int
    function: str
    source: str = ""


class Tensor(msgspec.Struct, frozen=True):
    """A tensor that the failing line names, as it was when Python noticed."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A line whose work was put on a stream and never finished.

    `iteration`: how often this line had been reached, this time included; None if that is not known. `iteration_to`:
    the last time that may have failed, if several may. `work`: names of kernels, or the kind of other work. `others`:
    lines whose work may have failed as well, since no mark stands between them and this one. `others_work`: for each of
    these, the same as `work`. `replayed`: the line that
    replayed the graph which the work was captured in. `replay`, `replay_to`: how often, as for `iteration`.
    """

    where: Line | None
    called_from: tuple[Line, ...] = ()
    inner: Line | None = None
    iteration: int | None = None
    iteration_to: int | None = None
    work: tuple[str, ...] = ()
    stream: str = ""
    backward: bool = False
    forward: tuple[Line, ...] = ()
    replayed: Line | None = None
    replay: int | None = None
    replay_to: int | None = None
    others: tuple[Line, ...] = ()
    others_work: tuple[tuple[str, ...], ...] = ()
    blocked: bool = False


class Noticed(msgspec.Struct, frozen=True, kw_only=True):
    """The call that returned the error. `later_ns`: the time from the launch of the failing work until this call
    returned."""

    where: Line | None
    call: str
    later_ns: int | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What only the program's own process knows of its fault."""

    tensors: tuple[Tensor, ...] = ()
    traceback: Line | None = None


class BlameResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a program's fault. `suspects` come in the order of their likelihood; without an `error`, no
    fault was seen. `dump`: what a core dump of a second run tells of the fault. `no_dump`: why there is none, if one
    was asked for."""

    schema: Literal["unstall.blame/1"] = "unstall.blame/1"
    program: str = ""
    error: str = ""
    code: int = 0
    suspects: tuple[Suspect, ...] = ()
    noticed: Noticed | None = None
    assertion: str = ""
    cause: str = ""
    fix: str = ""
    tensors: tuple[Tensor, ...] = ()
    traceback: Line | None = None
    unmarked: str = ""
    dump: CoreDump | None = None
    no_dump: str = ""


def read_result(path: Path) -> BlameResult:
    """Reads a saved result. Raises TraceError if the file is none."""
    with path.open("rb") as file:
        content = file.read(_LARGEST_BYTES + 1)
    if len(content) > _LARGEST_BYTES:
        raise TraceError(f"{path}: too large for a result of `unstall run --blame`")
    try:
        schema = msgspec.json.decode(content, type=_Schema).schema
        if schema == BlameResult().schema:
            return msgspec.json.decode(content, type=BlameResult)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{path}: no result that `unstall run --blame -o fault.json` wrote: {error}") from error
    raise TraceError(f"{path}: its schema is {schema!r}, and this version of unstall reads {BlameResult().schema!r}")
