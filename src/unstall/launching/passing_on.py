"""Passes a program's stderr to ours while the program runs, and calls a function with each piece of it."""

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
    """Yields a file descriptor for the program's stderr. What is written to it goes to our stderr and then, as bytes,
    to `see`.

    The file descriptor is a terminal if our stderr is one, so that the program behaves as if it wrote to our stderr.
    At the end of the block, everything that the program wrote has been passed on. Child processes that the program
    leaves running lose their stderr.
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
    """Returns (read end, write end) of a terminal in raw mode, which passes all bytes unchanged. It has the size of
    the terminal at our stderr."""
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
