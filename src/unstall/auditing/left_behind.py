"""Kills what a process has left behind: python left_behind.py, with a pipe from that process as stdin.

Each line of the pipe is the number of a process group: 123 once it has begun, -123 once it has ended. When the process
has ended, be it by SIGKILL, the pipe ends, too, and the groups that have not ended are killed.
"""

# It is started as a file, without site-packages, so that it starts at once.
from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Reads the pipe to its end."""
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
