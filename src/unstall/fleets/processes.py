"""Processes that map the files of a job: one worker for each file that is read at the same time."""

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
    """Maps files with a number of workers. Yields each outcome as soon as it is known. Large files come first.

    A worker that dies takes only its task with it. The task is tried again.
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
    """A process that maps one file after the other. If it dies, another one takes its place.

    Attributes:
        process: The process, or the one that it is a fork of.
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
    """A process that ends by itself once its sockets are closed."""

    def end(self) -> None:
        """Waits a little for its end, and then ends it."""


class _Fork:
    def __init__(self, process: ForkProcess) -> None:
        self._process = process

    def end(self) -> None:
        self._process.join(_PATIENCE_S)
        self._process.kill()
        self._process.join()


class _Server:
    """A process with a number of workers: itself and its forks, which end when their sockets are closed."""

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
