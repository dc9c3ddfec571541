"""Worker processes that summarise the traces of a job. There is one worker for each trace that is read at the same
time."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from multiprocessing.context import ForkProcess
from typing import Protocol

from unstall.decoding import from_msgpack
from unstall.fleets.mapping import Mapped, Task
from unstall.fleets.worker import can_fork, fork_workers, receive, send

_PATIENCE_S = 2
# Of processes whose numpy starts no threads, which they would not use.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_TRIES = 2  # a task whose worker was killed is tried once more


def run(tasks: Sequence[Task], sizes: Sequence[int], count: int) -> Generator[Mapped, None, None]:
    """Summarises traces in worker processes. Yields the outcome of each task as soon as it is known. Large traces are
    read first.

    If a worker dies, only the task that it was working on is affected. This task is tried once more, by a new worker.

    Args:
        tasks: The tasks. Each names the trace of one rank.
        sizes: For each task, the size of the trace in bytes.
        count: The number of workers.
    """
    idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()

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
            for worker in _started(count):
                idle.put(worker)
            for done in as_completed([pool.submit(mapped, tasks[at]) for at in order]):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)
            while not idle.empty():
                idle.get().close()


class _Worker:
    """A worker process that summarises one trace after the other. If the process dies, a new process takes its place
    for the next trace.
    """

    def __init__(self, ours: socket.socket, process: _Process) -> None:
        self._process: _Process | None = process  # or the process of which it is a fork; None if it has ended
        self._file = ours.makefile("rwb")
        ours.close()  # it stays open as long as the file

    def map(self, task: Task) -> Mapped:
        for _ in range(_TRIES):
            with suppress(OSError):
                if self._process is None:
                    (other,) = _started(1)
                    self._process, self._file = other._process, other._file
                send(self._file, task)
                if (message := receive(self._file)) is not None:
                    return from_msgpack(message, Mapped)
            self.close()
        return Mapped(path=task.path, why="the process that read it was killed: there may be too little memory")

    def close(self) -> None:
        """Ends the process. A closed worker may be closed again."""
        if self._process is None:
            return
        with suppress(OSError):
            self._file.close()
        self._process.end()
        self._process = None


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
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)  # noqa: PTH109 - as text
        self._left = len(theirs)
        self._process = subprocess.Popen(
            # Without -P, modules of the current folder, which may be one of traces, would come first.
            [sys.executable, "-P", "-m", "unstall.fleets.worker", *map(str, numbers)],
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
    with ExitStack() as ends, ExitStack() as others:
        ours, theirs = [], []
        for _ in range(count):
            one, other = socket.socketpair()
            ours.append(ends.enter_context(one))
            theirs.append(others.enter_context(other))
        forked = can_fork()
        processes = [_Fork(each) for each in fork_workers(theirs, ours)] if forked else [_Server(theirs)] * count
        return list(map(_Worker, ours, processes))
