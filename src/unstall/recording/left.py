"""Checks folders of recordings that an earlier `unstall run` left behind: whether unstall may read
such a folder, and whether its program still runs.

The folder for temporary files is shared with other users and programs, so such a folder may hold
anything.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from unstall.errors import TraceError
from unstall.recording.journal import NAME
from unstall.timeline.limits import MOST_JOURNAL_BYTES, MOST_LEFT_BYTES, MOST_LEFT_FILES, MOST_LEFT_LEVELS

_START_SLACK_S = 2.0  # the journal begins later than the process, and users may set the clock
_ENDED = ("Z", "X")


def check_folder(folder: Path) -> None:
    """Checks that a folder which an earlier recording left behind may be read.

    Raises:
        TraceError: The folder holds something else than folders and regular files of this user, or
            a link, or too much: too many files, or too large ones.
        OSError: The folder cannot be read.
    """
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode):
        raise TraceError("it is no folder")
    if about.st_uid != os.geteuid():
        raise TraceError(f"it belongs to user {about.st_uid}")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise TraceError("other users may write to it")
    count, waiting = 0, [(folder, 1)]
    while waiting:
        place, level = waiting.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                count += 1
                if count > MOST_LEFT_FILES:
                    raise TraceError(f"it has more than {MOST_LEFT_FILES:,} files")
                name = os.path.relpath(entry.path, folder)
                _check(name, entry.stat(follow_symlinks=False), level)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((Path(entry.path), level + 1))


def _check(name: str, about: os.stat_result, level: int) -> None:
    if about.st_uid != os.geteuid():
        raise TraceError(f"{name} in it belongs to user {about.st_uid}")
    is_journal = os.path.basename(name) == NAME  # noqa: PTH119 - as text
    if stat.S_ISDIR(about.st_mode) and not is_journal:
        if level == MOST_LEFT_LEVELS:
            raise TraceError(f"{name} in it is a folder within more than {MOST_LEFT_LEVELS - 1} others")
        return
    if not stat.S_ISREG(about.st_mode):
        raise TraceError(f"{name} in it is no regular file")
    most = MOST_JOURNAL_BYTES if is_journal else MOST_LEFT_BYTES
    if about.st_size > most:
        raise TraceError(f"{name} in it has {about.st_size:,} bytes, more than {most:,}")


def is_running(pid: object, began_s: object) -> bool:
    """Returns whether a process still runs. A process that has ended, and whose parent has not
    waited for it, does not run.

    Args:
        pid: The number of the process.
        began_s: A time after the start of the process, as a value of `time.time()`. A process with
            this number that started later is another process. If `began_s` is no number, the
            process may have started at any time.
    """
    if not isinstance(pid, int):
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        booted_s = next(
            int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime ")
        )
    except (OSError, StopIteration):
        return False
    if fields[0] in _ENDED:
        return False
    started_s = booted_s + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return not isinstance(began_s, int | float) or started_s <= began_s + _START_SLACK_S
