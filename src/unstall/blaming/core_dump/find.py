"""Finds the core dump that a process has written."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unstall.blaming.core_dump.arming import FILE, is_armed
from unstall.blaming.core_dump.read import read_core_dump
from unstall.blaming.core_dump.result import CoreDump
from unstall.errors import TraceError

_USUAL_FILE = "core_%t_%h_%p.nvcudmp"
_CLOCKS_DIFFER_S = 2.0
"""By how many seconds a file's modification time may differ from the time of this machine's clock."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search for the core dump of a process.

    Attributes:
        file: The core dump file, of this process or of another one that has the same environment;
            None if no file was found.
        dump: The contents of `file`; None if it was not read.
        why: Why `dump` is None; "" if `dump` is not None, or if no reason is known.
    """

    file: Path | None = None
    dump: CoreDump | None = None
    why: str = ""


def find(environment: Mapping[str, str], process: int, since_s: float) -> Found:
    """Finds the core dump that a process has written, and reads it.

    Child processes of the process inherit its environment, and may write core dumps too. The dump
    of a child is found but not read, because it may show a different fault.

    Args:
        environment: The environment of the process.
        process: The process id.
        since_s: The earliest time at which the dump may have been written, in seconds since the
            epoch.
    """
    if not is_armed(environment):
        return Found()
    file = _newest(environment, str(process), since_s)
    if file is None:
        other = _newest(environment, "*", since_s)
        why = f"the program's own process wrote none, but another that inherited its variables did: {other}"
        return Found(other, why=why) if other else Found()
    try:
        return Found(file, read_core_dump(file))
    except (TraceError, OSError) as error:
        return Found(file, why=str(error))


def _newest(environment: Mapping[str, str], process: str, since_s: float) -> Path | None:
    known = {"p": process, "%": "%"}
    parts = re.split(r"%([pht%])", environment.get(FILE) or _USUAL_FILE)
    pattern = "".join(known.get(part, "*") if at % 2 else glob.escape(part) for at, part in enumerate(parts))
    found = [path for name in glob.glob(pattern) if (path := Path(name)).is_file()]  # noqa: PTH207 - may be absolute
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    return newest if newest and newest.stat().st_mtime >= since_s - _CLOCKS_DIFFER_S else None
