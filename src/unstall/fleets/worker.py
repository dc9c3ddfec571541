"""Processes that summarise ranks: each reads tasks from a socket and writes their outcomes to it.

A message consists of its length in 8 bytes, little-endian, and of msgpack data.

The workers of a job are forks of one process that has imported all that they need, so they share its memory. That is
the caller's process if it has no other thread, whose locks a fork would copy as they are, and else a new one.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedRWPair
from multiprocessing.context import ForkProcess
from pathlib import Path

import msgspec
import numpy as np

from unstall.decoding import from_msgpack
from unstall.fleets.mapping import Task, map_file

_LENGTH = 8
_FORK = multiprocessing.get_context("fork")


def send(file: BufferedRWPair, message: msgspec.Struct) -> None:
    """Writes a message. Raises OSError if nobody reads."""
    data = msgspec.msgpack.encode(message)
    file.write(len(data).to_bytes(_LENGTH, "little") + data)
    file.flush()


def receive(file: BufferedRWPair) -> bytes | None:
    """Returns the next message, or None if there is none."""
    head = file.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    size = int.from_bytes(head, "little")
    data = file.read(size)
    return data if len(data) == size else None


def can_fork() -> bool:
    """Returns whether this process has one thread only, so that a fork of it works."""
    with suppress(OSError):
        return sum(1 for _ in Path("/proc/self/task").iterdir()) == 1
    return False


def fork_workers(theirs: Sequence[socket.socket], ours: Sequence[socket.socket] = ()) -> list[ForkProcess]:
    """Starts a worker for each of `theirs`. It closes all other sockets, so that each end has one owner."""
    _import_all()
    return [_forked(mine, [each for each in (*theirs, *ours) if each is not mine]) for mine in theirs]


def _forked(mine: socket.socket, others: Sequence[socket.socket]) -> ForkProcess:
    process = _FORK.Process(target=_serve, args=(mine, others), daemon=True)
    process.start()
    return process


def _serve(mine: socket.socket, others: Sequence[socket.socket]) -> None:
    gc.freeze()  # so that the collector does not write to the memory that the workers share
    os.dup2(2, 1)  # output of libraries is not the report's
    for other in others:
        other.close()
    serve(mine)


def serve(mine: socket.socket) -> None:
    """Does tasks until the other end is closed."""
    with suppress(KeyboardInterrupt, OSError), mine, mine.makefile("rwb") as file:
        while (message := receive(file)) is not None:
            send(file, map_file(from_msgpack(message, Task)))


def _import_all() -> None:
    """Imports what `map_file` needs."""
    from unstall.diagnose.rules import all_rules
    from unstall.fleets.summarise import summarise

    del summarise
    for _ in all_rules():
        pass
    np.unique([])  # numpy imports a part of itself when it is first called


def main() -> None:
    """Starts a worker for each socket that the command line names by its number, and waits for them."""
    sockets = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
    processes = fork_workers(sockets[1:], sockets[:1])
    for each in sockets[1:]:
        each.close()
    serve(sockets[0])
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
