"""Where the map runs: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Protocol

from unstall.decoding import from_msgpack
from unstall.errors import UsageError
from unstall.fleets.mapping import Mapped, Task, map_file
from unstall.fleets.worker import can_fork, fork_workers, receive, send

_SMALL_BYTES = 4 << 20  # files of fewer bytes together are read here: processes would take longer to start
_TIMES_MEMORY = 12  # bytes that reading takes for each byte of JSON text, measured by benchmarks/fleets.py
_EXPANSION = 12  # of a compressed trace
_LEAST_BYTES = 200 << 20
_PATIENCE_S = 2
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""The environment of processes whose numpy starts no threads, which they would not use."""
_TRIES = 2  # a worker that was killed is tried once more, alone


class Executor(Protocol):
    """Runs the map. Yields the outcome of each task as soon as it is known, in any order."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Mapped]: ...


class Processes:
    """Runs tasks in processes of this machine. There are as many as processors and memory allow.

    A process that dies takes only its task with it. The task is tried again.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most

    def run(self, tasks: Sequence[Task]) -> Iterator[Mapped]:
        sizes = [_size(task.path) for task in tasks]
        if self._most is None and sum(sizes) < _SMALL_BYTES:
            yield from map(map_file, tasks)
            return
        count = min(self._most or workers(sizes), len(tasks))
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
            env={**os.environ, "PYTHONPATH": path, **ONE_THREAD},
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


def workers(sizes: Sequence[int], available: int | None = None, processors: int | None = None) -> int:
    """Returns how many files of these sizes, in bytes of JSON text, can be read at once."""
    processors = processors or len(os.sched_getaffinity(0))
    available = available or _available_bytes()
    each = max(_LEAST_BYTES, _TIMES_MEMORY * max(sizes, default=0))
    return max(1, min(processors, len(sizes), available // (2 * each)))


def _available_bytes() -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 4 << 30


def _size(path: str) -> int:
    """Returns about how many bytes of text a file has."""
    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as file:
            packed = file.read(2) in (b"\x1f\x8b", b"\x28\xb5", b"PK")
    except OSError:
        return 0
    return size * _EXPANSION if packed else size


def executor_of(on: str | None) -> Executor:
    """Returns the executor that `--on` names: "ray" or "ray://ADDRESS"; None for processes of this machine.

    Raises:
        UsageError: There is no such executor, or Ray is not installed or cannot be reached.
    """
    if on is None:
        return Processes()
    if on == "ray" or on.startswith("ray:"):
        from unstall.fleets.on_ray import Ray

        return Ray(on)
    raise UsageError(f"--on {on}: write ray, or ray://ADDRESS:PORT")


def all_of(executor: Executor, tasks: Sequence[Task], progress: Callable[[int, int], None] | None) -> list[Mapped]:
    """Runs all tasks. Returns their outcomes, in the order of the tasks."""
    place = {task.path: number for number, task in enumerate(tasks)}
    found: dict[int, Mapped] = {}
    for mapped in _counted(executor.run(tasks), len(tasks), progress):
        found[place[mapped.path]] = mapped
    lost = (Mapped(path=task.path, why="the executor lost it") for task in tasks)
    return [found.get(number, mapped) for number, mapped in enumerate(lost)]


def _counted(mapped: Iterable[Mapped], total: int, progress: Callable[[int, int], None] | None) -> Iterator[Mapped]:
    for done, each in enumerate(mapped, 1):
        yield each
        if progress is not None:
            progress(done, total)
