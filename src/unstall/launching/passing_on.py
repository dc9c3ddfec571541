"""Forwards a program's stderr to the stderr of this process while the program runs. Calls a function with each piece of
the output."""

from __future__ import annotations

import errno
import os
import pty
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_CHUNK = 1 << 16


@contextmanager
def passed_on(see: Callable[[bytes], None]) -> Iterator[int]:
    """Yields a file descriptor for the program's stderr. Output that is written to this file descriptor is forwarded to
    the stderr of this process. Then `see` is called with the same output, as bytes.

    If the stderr of this process is a terminal, the file descriptor is a terminal, too. The program then behaves as if
    it wrote to the stderr of this process. At the end of the block, all output of the program has been forwarded. If
    child processes of the program are still running after the block, they lose their stderr.
    """
    reads, writes = _terminal() if os.isatty(2) else os.pipe()
    thread = threading.Thread(target=_pass_on, args=(reads, see), daemon=True)
    thread.start()
    try:
        yield writes
    finally:
        os.close(writes)
        thread.join(timeout=2.0)  # a child of the program's may keep the other end open
        if not thread.is_alive():
            os.close(reads)


def _terminal() -> tuple[int, int]:
    """Opens a pseudo-terminal in raw mode, which passes all bytes unchanged. The pseudo-terminal has the size of the
    terminal at the stderr of this process. Returns (read end, write end)."""
    reads, writes = pty.openpty()
    tty.setraw(writes)
    with suppress(OSError, termios.error):
        termios.tcsetwinsize(writes, termios.tcgetwinsize(2))
    return reads, writes


def _pass_on(reads: int, see: Callable[[bytes], None]) -> None:
    while True:
        try:
            chunk = os.read(reads, _CHUNK)
        except OSError as error:  # a terminal whose other end was closed
            if error.errno == errno.EINTR:
                continue
            return
        if not chunk:
            return
        with suppress(OSError, ValueError):
            sys.stderr.buffer.write(chunk)
            sys.stderr.buffer.flush()
        see(chunk)
