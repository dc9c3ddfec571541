"""Finds the processes of programs that run with `unstall run --blame`. Each process writes a file
about itself to a private folder.

Reads only folders that belong to this user and that nobody else may open. The size and form of the
files in these folders are checked.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unstall.blaming.hangs.child import WHO
from unstall.decoding import from_json

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "unstall-blame-"
_MOST_BYTES = 1 << 16
_MAJOR_FAULTS, _USER, _SYSTEM, _STARTED = 9, 11, 12, 19  # fields of /proc/PID/stat behind the name
_READ = re.compile(r"^rchar: (\d{1,20})$", re.MULTILINE)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Who(msgspec.Struct, frozen=True):
    """What a process writes about itself, to a file in its folder.

    Attributes:
        pid: The process id.
        parent: The process id of the parent.
        main_thread: The identifier of Python's main thread.
        started: When the process started, in clock ticks after the machine's start. This
            distinguishes the process from a later process with the same `pid`.
        program: The program's name.
        rank: The rank in a distributed run; None if the process has no rank.
        world_size: The number of ranks; None if the process has no rank.
        group: A text that is the same for all ranks that were started together; "" if the process
            has no rank.
    """

    pid: int
    parent: int
    main_thread: int
    started: int = 0
    program: str = ""
    rank: int | None = None
    world_size: int | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A process of a program that runs with `unstall run --blame`.

    Attributes:
        folder: The folder to which the process writes what it is doing.
        who: What the process writes about itself.
        main: Whether `unstall run` itself started this process. If false, the program started it.
    """

    folder: Path
    who: Who
    main: bool


def processes_in(folder: Path) -> list[Found]:
    """Returns the processes of one `unstall run` that have written a description of themselves,
    even those that have ended.

    `folder` is the folder of the `unstall run`, to which they wrote it.
    """
    found = [Found(folder, who, main=True)] if (who := _who(folder)) else []
    try:
        inner = sorted(path for path in folder.iterdir() if path.name.isdecimal())
    except OSError:
        return found
    return found + [Found(path, who, main=False) for path in inner if _is_private(path) and (who := _who(path))]


def group_of(folder: Path) -> list[Found]:
    """Returns the processes of one `unstall run`, and the other ranks of the same program.

    The other ranks may belong to another `unstall run`, for example if torchrun starts one `unstall
    run` for each rank. `folder` is the folder of the `unstall run`.
    """
    found = processes_in(folder)
    groups = {each.who.group for each in found if each.who.group}
    for other in _folders() if groups else ():
        if other != folder:
            found += [each for each in processes_in(other) if each.who.group in groups]
    return sorted(found, key=lambda each: (each.who.rank is None, each.who.rank or 0, not each.main, each.who.pid))


def folder_of(pid: int) -> Path | None:
    """Returns the folder of an `unstall run --blame`; None if no such run belongs to `pid`.

    Args:
        pid: The process id of the `unstall run`, or of one of the processes that it started.
    """
    for folder in _folders():
        for each in processes_in(folder):
            if state_of(each.who.pid, each.who.started) and pid in (each.who.pid, each.who.parent if each.main else 0):
                return folder
    return None


def state_of(pid: int, started: int = 0) -> str:
    """Returns the state of a process as a letter, as ps shows it, such as "S" or "T"; "" if the
    process has ended.

    Args:
        pid: The process id.
        started: When the process started, in clock ticks after the machine's start. If another
            process has got the same `pid` later, the result is "". If 0, the result is that of any
            process with this `pid`.
    """
    fields = _stat(pid)
    is_it = len(fields) > _STARTED and (not started or fields[_STARTED] == str(started))
    return fields[0] if is_it and fields[0] not in "ZX" else ""


def effort_of(pid: int) -> tuple[float, int, int]:
    """Returns how much CPU time a process has used and how much it has read since it started.

    Returns:
        `(CPU time in seconds, pages read from disk, blocks of 64 KiB read from files)`.
    """
    fields = _stat(pid)
    if len(fields) <= _STARTED:
        return 0.0, 0, 0
    read = _READ.search(_text(f"/proc/{pid}/io"))
    cpu_s = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS_PER_S
    return cpu_s, int(fields[_MAJOR_FAULTS]), int(read[1]) >> 16 if read else 0


def _folders() -> Iterator[Path]:
    for parent in dict.fromkeys((SHARED_MEMORY, Path(tempfile.gettempdir()))):
        try:
            found = sorted(parent.glob(f"{PREFIX}*"))
        except OSError:
            continue
        yield from (folder for folder in found if _is_private(folder))


def _is_private(folder: Path) -> bool:
    try:
        about = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077


def _who(folder: Path) -> Who | None:
    try:
        with (folder / WHO).open("rb") as file:
            return from_json(file.read(_MOST_BYTES), Who)
    except (OSError, msgspec.DecodeError):
        return None


def _stat(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat after the process's name. The name itself may contain spaces."""
    return _text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
