"""`BlameResult`: the fault of a program, as data. Its JSON form is `unstall.blame/1`."""

from __future__ import annotations

from typing import Literal

import msgspec


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
    lines whose work may have failed as well, since no mark stands between them and this one. `replayed`: the line that
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
    fault was seen. `races`: None if none were looked for. `races_missing`: why some may
    be missing."""

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
    races: tuple[Race, ...] | None = None
    races_missing: str = ""
