"""Kills the process groups that a process has left behind. This program is run as `python
left_behind.py`.

The process that starts this program writes to its stdin, which is a pipe. Each line is the number
of a process group: 123 if the group has begun, -123 if it has ended. The pipe closes when the
process that started this program ends, even by SIGKILL. Then this program kills all groups that
have not ended.
"""

# It is started as a file, without site-packages, so that it starts at once.
from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Reads from stdin which process groups begin and end. After the end of stdin, kills the groups
    that have not ended.
    """
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        number = int(line)
        if number > 0:
            groups.add(number)
        else:
            groups.discard(-number)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
