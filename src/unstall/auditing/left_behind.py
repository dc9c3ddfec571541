"""Kills what a process has left behind: python left_behind.py, with a pipe from that process as stdin.

Each line of the pipe is the number of a process group: 123 when the group has begun, -123 when it has ended. The pipe
ends when the process has ended, even by SIGKILL. Then all groups that have not ended are killed.
"""

# It is started as a file, without site-packages, so that it starts at once.
from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Reads from stdin which process groups begin and end. When stdin ends, kills the groups that have not ended."""
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
