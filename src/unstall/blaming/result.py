"""`BlameResult`: what is known of a program's fault, as data. Its JSON form is `unstall.blame/1`."""

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
    """A line of Python. `source` is the text of the line, or "" if the file could not be read."""

    file: str
    line: int
    function: str
    source: str = ""


class Tensor(msgspec.Struct, frozen=True):
    """A tensor that the failing line uses, as it was when Python noticed the fault."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A line whose work was put on a stream and never finished.

    `iteration`: which execution of the line failed, counted from 1; None if not known. `iteration_to`: if several
    executions may have failed, the last of them. `work`: names of the kernels that the line launched, or words for
    other work. `others`: lines whose work may have failed instead. `others_work`: the work of each of these lines.
    `replayed`: the line that replayed the graph, if the work is in a graph. `replay` and `replay_to`: which replay of
    the graph failed, like `iteration` and `iteration_to`. `blocked`: the work may only have waited for another stream.
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
    """The call that returned the error. `later_ns`: the time from the launch of the failed work to the return of this
    call."""

    where: Line | None
    call: str
    later_ns: int | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What the failed process itself wrote about its fault: tensors, and the user's line of the traceback."""

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
    """A Python thread that is in the user's code. `at`: its innermost line there. `stack`: frames, innermost first."""

    at: Line
    stack: tuple[Line, ...] = ()
    is_main: bool = False
    collective: str = ""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the program.

    `state`: "waits" if the process has made no progress for `quiet_ns`, "silent" if it did not answer in time.
    `collective`: the function of `torch.distributed`, or NCCL's kernel, in which the process waits for other ranks.
    `worked`: whether the process has ever put work on a device. `stack`: the main thread's frames, innermost first.
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

    `after_ns`: the time-out that found the hang; None if a user asked where the program is. `ended`: whether unstall
    ended the program because of the hang. `moved_ns`: the length of the hang, if the program went on after it.
    """

    after_ns: int | None
    processes: tuple[Process, ...] = ()
    ended: bool = False
    moved_ns: int | None = None


class RaceSide(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two operations of a race. `stream` is None for the host.

    `replayed`: if the operation is in a graph, the line that replayed the graph.
    """

    where: Line | None
    called_from: tuple[Line, ...] = ()
    operator: str = ""
    stream: str | None = None
    backward: bool = False
    replayed: Line | None = None


class Race(msgspec.Struct, frozen=True, kw_only=True):
    """Two operations that use the same memory and may run in either order. The program called `earlier` first.

    `bytes`: the largest number of bytes that both used. `count`: how often this race was seen. `freed_at`: the line
    that freed the first tensor, if a second tensor was given its memory.
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
    """What is known of a program's fault. If `error` is "", no fault was seen.

    `suspects`: the likeliest first. `dump`: the core dump of a second run. `no_dump`: if a core dump was asked for and
    not written, the reason. `races`: None if no races were looked for. `races_missing`: why some races may be missing.
    """

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
    """Reads a result that `unstall run --blame` saved. Raises TraceError if the file is not such a result."""
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
