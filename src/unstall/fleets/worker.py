"""Worker processes that summarise traces. Each worker reads tasks from a socket and writes their outcomes to the same
socket.

A message has 8 bytes with the length of its data (little-endian), and then the data as msgpack.

All workers are forks of one process that has already imported everything that they need, so they share its memory. If
the caller's process has only one thread, the workers are forks of the caller's process. Otherwise they are forks of a
new process, because a fork copies locks that other threads hold.
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
from unstall.fleets.freed_memory import WORKER_BYTES, keep_freed_memory
from unstall.fleets.mapping import Task, map_file

_LENGTH = 8
_FORK = multiprocessing.get_context("fork")


def send(file: BufferedRWPair, message: msgspec.Struct) -> None:
    """Writes a message to a worker's socket. Raises OSError if the other end of the socket is closed."""
    data = msgspec.msgpack.encode(message)
    file.write(len(data).to_bytes(_LENGTH, "little") + data)
    file.flush()


def receive(file: BufferedRWPair) -> bytes | None:
    """Returns the data of the next message from a worker's socket. Returns None if the other end of the socket is
    closed."""
    head = file.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    size = int.from_bytes(head, "little")
    data = file.read(size)
    return data if len(data) == size else None


def can_fork() -> bool:
    """Returns whether this process has only one thread. Only then is it safe to fork this process."""
    with suppress(OSError):
        return sum(1 for _ in Path("/proc/self/task").iterdir()) == 1
    return False


def fork_workers(theirs: Sequence[socket.socket], ours: Sequence[socket.socket] = ()) -> list[ForkProcess]:
    """Forks a worker from this process for each socket in `theirs`. Each worker closes all other sockets in `theirs`
    and `ours`, so that only one process has each end of a connection.

    Args:
        theirs: The sockets of the workers.
        ours: The sockets of the caller.

    Returns:
        The processes of the workers.
    """
    _import_all()
    return [_forked(mine, [each for each in (*theirs, *ours) if each is not mine]) for mine in theirs]


def _forked(mine: socket.socket, others: Sequence[socket.socket]) -> ForkProcess:
    process = _FORK.Process(target=_serve, args=(mine, others), daemon=True)
    process.start()
    return process


def _serve(mine: socket.socket, others: Sequence[socket.socket]) -> None:
    gc.freeze()  # so that the collector does not write to the memory that the workers share
    gc.enable()  # the caller may have disabled it
    os.dup2(2, 1)  # output of libraries is not the report's
    for other in others:
        other.close()
    serve(mine)


def serve(mine: socket.socket) -> None:
    """Does the tasks that arrive at the socket `mine`, until the other end of the socket is closed. Writes the outcome
    of each task to the socket."""
    keep_freed_memory(WORKER_BYTES)
    with suppress(KeyboardInterrupt, OSError), mine, mine.makefile("rwb") as file:
        while (message := receive(file)) is not None:
            send(file, map_file(from_msgpack(message, Task)))


def _import_all() -> None:
    """Imports all modules that `map_file` needs."""
    from unstall.diagnose.rules import all_rules
    from unstall.fleets.summarise import summarise

    del summarise
    for _ in all_rules():
        pass
    np.unique([])  # numpy imports a part of itself when it is first called


def main() -> None:
    """Starts one worker for each socket whose file descriptor is on the command line. This process serves the first
    socket itself. Waits until all workers have ended."""
    sockets = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
    processes = fork_workers(sockets[1:], sockets[:1])
    for each in sockets[1:]:
        each.close()
    serve(sockets[0])
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
