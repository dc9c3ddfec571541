"""Worker processes that summarise the traces of a job. There is one worker for each trace that is read at the same
time."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing.context import ForkProcess
from typing import Protocol

from unstall.decoding import from_msgpack
from unstall.fleets.mapping import Mapped, Task
from unstall.fleets.worker import can_fork, fork_workers, receive, send

_PATIENCE_S = 2
# Of processes whose numpy starts no threads, which they would not use.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_TRIES = 2  # a worker that was killed is tried once more, alone


def run(tasks: Sequence[Task], sizes: Sequence[int], count: int) -> Iterator[Mapped]:
    """Summarises traces in worker processes. Yields the outcome of each task as soon as it is known. Large traces are
    read first.

    If a worker dies, only the task that it was working on is affected. This task is tried once more, by a new worker.

    Args:
        tasks: The tasks. Each names the trace of one rank.
        sizes: For each task, the size of the trace in bytes.
        count: The number of workers.
    """
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for worker in _started(count):
        idle.put(worker)

    def mapped(task: Task) -> Mapped:
        worker = idle.get()
        try:
            return worker.map(task)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(count) as pool:
        # Large files first, so that no process ends long after the others.
        order = sorted(range(len(tasks)), key=lambda at: -sizes[at])
        try:
            for done in as_completed([pool.submit(mapped, tasks[at]) for at in order]):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)
            while not idle.empty():
                idle.get().close()


class _Worker:
    """A worker process that summarises one trace after the other. If the process dies, a new process takes its place.

    Attributes:
        process: The process to end when this worker is closed: the worker process, or the process of which it is a
            fork.
    """

    def __init__(self, ours: socket.socket, process: _Process) -> None:
        self.process = process
        self._file = ours.makefile("rwb")
        ours.close()  # it stays open as long as the file

    def map(self, task: Task) -> Mapped:
        for tries in range(_TRIES):
            if tries:
                self.close()
                (other,) = _started(1)
                self.process, self._file = other.process, other._file
            with suppress(OSError):
                send(self._file, task)
                if (message := receive(self._file)) is not None:
                    return from_msgpack(message, Mapped)
        return Mapped(path=task.path, why="the process that read it was killed: there may be too little memory")

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
        self.process.end()


class _Process(Protocol):
    """A process that ends by itself after its sockets have been closed."""

    def end(self) -> None:
        """Waits up to 2 seconds until the process ends. If it has not ended by then, kills it."""


class _Fork:
    def __init__(self, process: ForkProcess) -> None:
        self._process = process

    def end(self) -> None:
        self._process.join(_PATIENCE_S)
        self._process.kill()
        self._process.join()


class _Server:
    """A process that starts several workers: it is one worker itself, and its forks are the others. They end when their
    sockets are closed."""

    def __init__(self, theirs: Sequence[socket.socket]) -> None:
        numbers = [each.fileno() for each in theirs]
        path = os.pathsep.join(filter(None, sys.path))
        self._left = len(theirs)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "unstall.fleets.worker", *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=numbers,
            env={**os.environ, "PYTHONPATH": path, **_ONE_THREAD},
        )

    def end(self) -> None:
        self._left -= 1
        if self._left:
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE_S)
            return
        self._process.kill()
        self._process.wait()


def _started(count: int) -> list[_Worker]:
    ours, theirs = zip(*(socket.socketpair() for _ in range(count)), strict=True)
    forked = can_fork()
    processes = [_Fork(each) for each in fork_workers(theirs, ours)] if forked else [_Server(theirs)] * count
    for each in theirs:
        each.close()
    return list(map(_Worker, ours, processes))
