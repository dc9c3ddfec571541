"""`BlameResult`: what is known of a program's fault, as data. Its JSON form is `unstall.blame/1`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from unstall.blaming.core_dump.result import CoreDump
from unstall.decoding import from_json
from unstall.errors import TraceError

_LARGEST_BYTES = 1 << 26


class _Schema(msgspec.Struct):
    schema: str


class Line(msgspec.Struct, frozen=True):
    """A line of Python code.

    Attributes:
        file: The path of the file.
        line: The line number.
        function: The function that contains the line.
        source: The text of the line; "" if the file could not be read.
    """

    file: str
    line: int
    function: str
    source: str = ""


class Tensor(msgspec.Struct, frozen=True):
    """A tensor that the failing line uses, as it was when Python noticed the error of the device:
    its name in the source, its shape, type and device.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A source line that put work on a stream, and whose work did not finish.

    Attributes:
        where: The line; None if it is not known.
        called_from: The lines of the user's code from which `where` was called, innermost first.
        inner: The innermost Python line of the call stack, which may be in a library; None if it is
            not known.
        iteration: Which execution of the line failed, counted from 1; None if this is not known. If
            several executions may have failed, the first of these.
        iteration_to: The last execution that may have failed; None if only one execution can have
            failed.
        work: Names of the kernels that the line launched, or descriptions of other work.
        stream: The stream's name.
        backward: Whether the work belongs to a backward pass.
        forward: If the failed work belongs to a backward op: the lines of the user's code that
            called its forward op, innermost first.
        replayed: If the work is in a CUDA graph, the line that replayed the graph; otherwise None.
        replay: Which replay of the CUDA graph failed, counted from 1. If several replays may have
            failed, the first of these. None if the work is in no graph, or if this is not known.
        replay_to: The last replay that may have failed; None if only one replay can have failed.
        others: Other lines whose work may have failed instead.
        others_work: For each line in `others`, the names of its kernels or descriptions of its
            other work.
        blocked: Whether the work may merely have waited for another stream.
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
    """The CUDA call that returned the error of a fault. This call comes later than the launch of
    the work that failed.

    Attributes:
        where: The line that made the call; None if it is not known.
        call: The name of the call.
        later_ns: Time from the launch of the failed work to the return of the call; None if it is
            not known.
    """

    where: Line | None
    call: str
    later_ns: int | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """What a process itself wrote about its fault (an error of its device).

    Attributes:
        tensors: The tensors that the failing line uses.
        traceback: The last line of the user's code in the traceback.
    """

    tensors: tuple[Tensor, ...] = ()
    traceback: Line | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream with unfinished work is doing.

    Attributes:
        stream: The stream's name.
        waits: What the stream has not finished. "event": it waits for an event. "value": it waits
            for a value in memory. "kernel", "graph", "copy", "memset" or "collective": the kind of
            work. "unknown": the recording does not have the work.
        work: The line that put this work on the stream; None if no line is known. If other lines
            are possible too, they are in the field `others` of `work`.
        on: If the stream waits for an event, the line that recorded the event. If it waits for a
            value in memory, the line that writes the value. Otherwise None.
        on_stream: The name of the stream that records the event or writes the value; "" if there is
            none.
        circular: Whether the stream `on_stream` waits for this stream, directly or through other
            streams.
        is_sure: Whether this stream surely has unfinished work of its own. If false, its last work
            may have finished, or the stream may only wait for other streams.
    """

    stream: str
    waits: Literal["kernel", "graph", "copy", "memset", "collective", "event", "value", "unknown"]
    work: Suspect | None = None
    on: Line | None = None
    on_stream: str = ""
    circular: bool = False
    is_sure: bool = True


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """A Python thread that is executing the user's code.

    Attributes:
        at: The innermost line of the user's code in this thread.
        stack: The lines of the thread's stack, innermost first.
        is_main: Whether this thread is the main thread.
        collective: The function of `torch.distributed` in which the thread may wait for other
            ranks; "" if it is in no such function.
    """

    at: Line
    stack: tuple[Line, ...] = ()
    is_main: bool = False
    collective: str = ""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the program.

    Attributes:
        pid: The process id.
        state: "waits" if the process makes no progress and counts as hanging; "moves" if it does
            not count as hanging; "silent" if it did not answer in time; "stopped" if a signal has
            stopped it; "ended" if it has ended.
        rank: The rank in a distributed run; None if the process has no rank.
        world_size: The number of ranks; None if the process has no rank.
        quiet_ns: Time since the process last made progress; None if this is not known.
        worked: Whether the process has ever put work on a device.
        at: The innermost line of the user's code in the main thread; None if there is none.
        stack: The lines of the main thread's stack, innermost first.
        threads: The Python threads that are executing the user's code.
        streams: What each stream with unfinished work is doing.
        collective: The function of `torch.distributed`, or the collective of the NCCL kernel, in
            which the process waits for other ranks; "" if the process does not wait for ranks.
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
    """A hang: what each process of a program is doing while the program makes no progress.

    Attributes:
        after_ns: For how long the program made no progress until this counted as a hang; None if a
            user asked what the program is doing.
        processes: The processes.
        ended: Whether unstall ended the program because of the hang.
        moved_ns: Length of the hang, if the program continued after it; otherwise None.
    """

    after_ns: int | None
    processes: tuple[Process, ...] = ()
    ended: bool = False
    moved_ns: int | None = None


class RaceSide(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two operations of a race.

    Attributes:
        where: The line that launched the operation; None if it is not known.
        called_from: The lines that called the function of `where`, innermost first.
        operator: The operator's name.
        stream: The stream's name; None if the host did the operation.
        backward: Whether the operation belongs to a backward pass.
        replayed: If the operation is in a CUDA graph, the line that replayed the graph; otherwise
            None.
    """

    where: Line | None
    called_from: tuple[Line, ...] = ()
    operator: str = ""
    stream: str | None = None
    backward: bool = False
    replayed: Line | None = None


class Race(msgspec.Struct, frozen=True, kw_only=True):
    """A race: two operations that use the same memory and may run in either order.

    Attributes:
        kind: The kind of race, such as "read-early".
        title: A sentence that says what happens.
        earlier: The operation that the program called first.
        later: The operation that the program called second.
        bytes: How many bytes both operations used. If the race was seen several times, the largest
            number.
        count: How often this race was seen.
        freed_at: If a second tensor got the memory of a first tensor, the line that freed the first
            tensor. Otherwise None.
        fix: What to do about the race.
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
    """What is known of a program's fault (an error of the device), of its hang, and of its races.

    Attributes:
        schema: Name and version of the JSON form.
        program: The program.
        error: The error of the device, in words; "" if no fault was seen.
        code: The error, as a CUresult.
        suspects: The lines whose work may have failed, the likeliest first.
        noticed: The CUDA call that returned the error; None if it is not known.
        assertion: The text of the failed device-side assertion; "" if none failed.
        cause: The cause of the error; "" if it is not known.
        fix: What to do about the fault; "" if it is not known.
        tensors: The tensors that the failing line uses.
        traceback: The last line of the user's code in the traceback; None if there is none.
        unmarked: Why `suspects` may not be exact; "" if it is exact.
        dump: The core dump of a second run; None if there is none.
        no_dump: Why there is no core dump, if the user asked for one; otherwise "".
        hang: Where the program hangs; None if no hang was seen.
        races: The races; None if the run did not look for races.
        races_missing: Why some races may be missing; "" if there is no such reason.
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
    """Reads a result that `unstall run --blame` saved as JSON.

    Raises:
        TraceError: The file is not such a result.
    """
    with path.open("rb") as file:
        content = file.read(_LARGEST_BYTES + 1)
    if len(content) > _LARGEST_BYTES:
        raise TraceError(f"{path}: too large for a result of `unstall run --blame`")
    try:
        schema = from_json(content, _Schema).schema
        if schema == BlameResult().schema:
            return from_json(content, BlameResult)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"{path}: no result that `unstall run --blame -o fault.json` wrote: {error}") from error
    raise TraceError(f"{path}: its schema is {schema!r}, and this version of unstall reads {BlameResult().schema!r}")
