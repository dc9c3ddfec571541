"""Chooses where the traces of a job are summarised: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from unstall.errors import UsageError
from unstall.fleets.cache import prune
from unstall.fleets.machine import available_bytes
from unstall.fleets.machine import processors as usable_processors
from unstall.fleets.mapping import Mapped, Task, map_file

_SMALL_BYTES = 8 << 20  # files of fewer bytes together are read here: processes would take longer to start
# Of memory, beside what the workers share: 0.6 to 1.4 bytes for each byte of text in 8 recordings of examples/traces,
# and 1.2 in a written trace of 49 MB; at least 10 MB in each.
_TIMES_MEMORY = 2
_LEAST_BYTES = 32 << 20
_HEAD_BYTES = 64 << 10
_EXPANSION = 30  # of a compressed trace: 20 to 30 in these recordings


class Executor(Protocol):
    """Summarises traces. `run` yields an outcome for each task as soon as it is known, in any order. A task names the
    trace of one rank."""

    def run(self, tasks: Sequence[Task]) -> Generator[Mapped, None, None]: ...


class Processes:
    """Summarises traces in processes of this machine. The number of processes depends on the processors, the memory and
    the sizes of the traces. Small traces are summarised in the current process.

    If a process dies, only the task that it was working on is affected. This task is tried once more.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most

    def run(self, tasks: Sequence[Task]) -> Generator[Mapped, None, None]:
        looks = [_look(task.path) for task in tasks]
        tasks = _without_needless_digests(tasks, looks)
        sizes = [look.text_bytes for look in looks]
        if self._most is None and sum(sizes) < _SMALL_BYTES:
            yield from map(map_file, tasks)
        else:
            from unstall.fleets.processes import run  # not for small files: it imports as long as they take

            yield from run(tasks, sizes, min(self._most or workers(sizes), len(tasks)))
        if any(task.cache for task in tasks):
            prune()


def workers(sizes: Sequence[int], available: int | None = None, processors: int | None = None) -> int:
    """Returns how many traces can be read at the same time, limited by memory and by the number of processors.

    Args:
        sizes: The size of each trace, in bytes of uncompressed JSON text.
        available: The memory that may be used, in bytes. None: the memory that the system reports as available.
        processors: The number of processors. None: those that this process may use.
    """
    processors = usable_processors() if processors is None else processors
    available = available_bytes() if available is None else available
    each = max(_LEAST_BYTES, _TIMES_MEMORY * max(sizes, default=0))
    return max(1, min(processors, len(sizes), available // (2 * each)))


class _Look(NamedTuple):
    """What tells a file from others without reading all of it.

    Attributes:
        bytes: The size of the file. -1 if the file cannot be read.
        head: A digest of the first bytes of the file. A trace has its rank there.
        text_bytes: The approximate size of the file's text after decompression.
    """

    bytes: int = -1
    head: int = 0
    text_bytes: int = 0


def _look(path: str) -> _Look:
    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb", buffering=0) as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return _Look()
    packed = head[:2] in (b"\x1f\x8b", b"\x28\xb5", b"PK")
    return _Look(size, hash(head), size * _EXPANSION if packed else size)


def _without_needless_digests(tasks: Sequence[Task], looks: Sequence[_Look]) -> list[Task]:
    """Tells each task whether its file alone has its size and its first bytes: then it is no copy of another."""
    counts = Counter((look.bytes, look.head) for look in looks)
    return [replace(task, alone=counts[look.bytes, look.head] == 1) for task, look in zip(tasks, looks, strict=True)]


def executor_of(on: str | None, named: str = "on=") -> Executor:
    """Returns the executor that a word stands for.

    Args:
        on: "ray", "ray://ADDRESS:PORT", or None for processes of this machine.
        named: What errors call `on`, with what stands between it and its value, such as "--on ".

    Raises:
        UsageError: `on` names no executor, Ray is not installed, or the cluster cannot be reached.
    """
    if on is None:
        return Processes()
    if on == "ray" or on.startswith("ray:"):
        from unstall.fleets.on_ray import Ray

        return Ray(on, named=named)
    raise UsageError(f"{named}{on}: write ray, or ray://ADDRESS:PORT")


def all_of(executor: Executor, tasks: Sequence[Task], progress: Callable[[int, int], None] | None) -> list[Mapped]:
    """Runs all tasks by an executor. Returns an outcome for each task, in the order of `tasks`. If the executor lost a
    task, its outcome says so.

    Args:
        executor: The executor.
        tasks: The tasks. Each names the trace of one rank.
        progress: If not None, called after each task with the number of finished tasks and the number of all tasks.
    """
    place = {task.path: number for number, task in enumerate(tasks)}
    found: dict[int, Mapped] = {}
    with closing(executor.run(tasks)) as running:
        for mapped in _counted(running, len(tasks), progress):
            found[place[mapped.path]] = mapped
    lost = (Mapped(path=task.path, why="the executor lost it") for task in tasks)
    return [found.get(number, mapped) for number, mapped in enumerate(lost)]


def _counted(mapped: Iterable[Mapped], total: int, progress: Callable[[int, int], None] | None) -> Iterator[Mapped]:
    for done, each in enumerate(mapped, 1):
        yield each
        if progress is not None:
            progress(done, total)
