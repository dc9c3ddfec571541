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


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream with unfinished work is doing.

    Attributes:
        stream: The stream's name.
        waits: The kind of work that it is doing, or the kind of thing that it waits for.
        work: The line that put this work on the stream, and others that may have; None if no line is known.
        on: If it waits for an event, the line that recorded the event. If it waits for a value in memory, the line that
            writes the value.
        on_stream: The stream of `on`.
        circular: Whether the stream `on_stream` waits for this stream.
        is_sure: Whether the driver says that the stream is not done. If not, its last work may have ended unseen.
    """

    stream: str
    waits: Literal["kernel", "graph", "copy", "memset", "collective", "event", "value", "unknown"]
    work: Suspect | None = None
    on: Line | None = None
    on_stream: str = ""
    circular: bool = False
    is_sure: bool = True


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """A thread of Python that is in the user's code. `stack`: innermost first."""

    at: Line
    stack: tuple[Line, ...] = ()
    is_main: bool = False
    collective: str = ""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the program. `state`: "waits" if nothing has moved for `quiet_ns`, "silent" if it did not answer.

    `collective`: the function of `torch.distributed`, or the kernel of NCCL's, in which it waits for other ranks.
    `worked`: whether it has ever put work on a device. `stack`: of the main thread, innermost first.
    """

    pid: int
    state: Literal["waits", "moves", "ended", "stopped", "silent"]
    rank: int | None = None
    world_size: int | None = None
    quiet_ns: int | None = None
    worked: bool = False
    at: Line | None = None
    stack: tuple[Line, ...] = ()
    threads: tuple[Thread, ...] = ()
    streams: tuple[Standing, ...] = ()
    collective: str = ""


class Hang(msgspec.Struct, frozen=True, kw_only=True):
    """Where each process of a program is while nothing moves.

    `after_ns`: the time-out; None if somebody asked from outside. `ended`: the program was ended for it. `moved_ns`:
    how long the hang was, if the program moved again.
    """

    after_ns: int | None
    processes: tuple[Process, ...] = ()
    ended: bool = False
    moved_ns: int | None = None


class RaceSide(msgspec.Struct, frozen=True, kw_only=True):
    """One of two operations that use the same memory in no order. `stream` is None for the host.

    `replayed`: the line that replayed the graph in which the operation was captured.
    """

    where: Line | None
    called_from: tuple[Line, ...] = ()
    operator: str = ""
    stream: str | None = None
    backward: bool = False
    replayed: Line | None = None


class Race(msgspec.Struct, frozen=True, kw_only=True):
    """Two operations that use the same memory, and that nothing orders. The program asked for `earlier` first.

    `bytes`: the most that they share. `count`: how often the two lines did it. `freed_at`: where the earlier tensor
    was freed, if another one has its memory.
    """

    kind: str
    title: str
    earlier: RaceSide
    later: RaceSide
    bytes: int
    count: int
    freed_at: Line | None = None
    fix: str = ""


class BlameResult(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a program's fault. `suspects` come in the order of their likelihood; without an `error`, no
    fault was seen. `dump`: what a core dump of a second run tells of the fault. `no_dump`: why there is none, if one
    was asked for. `races`: None if none were looked for. `races_missing`: why some may be missing."""

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
    hang: Hang | None = None
    races: tuple[Race, ...] | None = None
    races_missing: str = ""


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
