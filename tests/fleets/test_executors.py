"""Where the map runs: processes that die are replaced, and Ray is asked for what it can do."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fleets.jobs import job, train_ddp
from msgspec.structs import replace

from unstall.errors import UsageError
from unstall.fleets import processes, worker
from unstall.fleets.executors import Processes, all_of, executor_of, workers
from unstall.fleets.mapping import Task, map_file
from unstall.fleets.on_ray import Ray
from unstall.fleets.worker import can_fork

GIB = 1 << 30


def children() -> set[int]:
    """The processes that this one started, and those that these started."""
    found: set[int] = set()
    ahead = [os.getpid()]
    while ahead:
        for task in Path(f"/proc/{ahead.pop()}/task").glob("*/children"):
            with suppress(OSError):
                mine = set(map(int, task.read_text().split())) - found
                found |= mine
                ahead += mine
    return found


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    paths = job(partial(train_ddp, steps=2, layers=1, kernels=2), tmp_path, ranks=4)
    return [Task(path=str(path), cache=False) for path in paths]


def test_as_many_processes_run_as_memory_allows() -> None:
    assert workers([50 << 20] * 100, available=64 * GIB, processors=8) == 8
    assert workers([4 * GIB] * 100, available=64 * GIB, processors=8) == 4
    assert workers([10 * GIB], available=GIB, processors=8) == 1
    assert workers([1], available=64 * GIB, processors=8) == 1


def test_only_files_that_begin_alike_and_have_one_size_are_compared_by_content(tmp_path: Path) -> None:
    long = b"[" * 100_000
    for name, text in (
        ("a", b"[[["),
        ("b", b"[[["),
        ("c", b"[[[["),
        ("d", b"[[]"),
        ("e", long),
        ("f", long[:-1] + b"]"),
    ):
        (tmp_path / f"{name}.json").write_bytes(text)
    tasks = [Task(path=str(path), cache=False) for path in sorted(tmp_path.iterdir())]
    same, copy, longer, other, begins, alike = (each.digest for each in all_of(Processes(), tasks, None))
    assert same == copy != ""
    assert (longer, other) == ("", "")
    assert begins != alike
    assert "" not in (begins, alike)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_a_process_keeps_the_memory_that_it_frees() -> None:
    program = """
import resource, numpy as np
from unstall.fleets.freed_memory import WORKER_BYTES, keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(40): [np.ones(1 << 16) for _ in range(12)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
usual = faults()
keep_freed_memory(WORKER_BYTES)
faults()
print(usual, faults())
"""
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    usual, kept = map(int, asked.stdout.split())
    assert usual > 10_000  # 6 MiB, 40 times
    assert kept < 0.2 * usual


@pytest.mark.parametrize("forks", [True, False])
def test_each_file_is_read_once_and_no_process_is_left(
    tasks: list[Task], forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: forks)
    before = children()
    found = all_of(Processes(2), tasks, None)
    assert [each.path for each in found] == [task.path for task in tasks]
    assert all(each.data is not None for each in found)
    assert found == [map_file(replace(task, alone=True)) for task in tasks]
    assert children() == before


@pytest.mark.parametrize("forks", [True, False])
def test_a_process_that_is_killed_is_replaced(tasks: list[Task], forks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: forks)
    before = children()
    started = processes._started
    times: list[int] = []

    def start(count: int) -> Any:
        workers = started(count)
        times.append(count)
        if len(times) == 1:
            os.kill(max(children() - before), signal.SIGKILL)
        return workers

    monkeypatch.setattr(processes, "_started", start)
    found = all_of(Processes(2), tasks, None)
    assert times in ([2, 1], [2, 1, 1])  # a server may not have forked yet
    assert all(each.data is not None for each in found)
    assert children() == before


def test_if_no_process_can_take_a_killed_ones_place_only_its_trace_is_lost(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: True)
    before, started, times = children(), processes._started, count()

    def start(number: int) -> Any:
        if next(times) == 1:
            raise BlockingIOError("no more processes")
        workers = started(number)
        if number == 2:
            os.kill(max(children() - before), signal.SIGKILL)
        return workers

    monkeypatch.setattr(processes, "_started", start)
    found = all_of(Processes(2), tasks, None)
    assert sum(each.data is None for each in found) == 1
    assert children() == before


def test_workers_import_nothing_from_the_current_folder(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current folder may be one of traces that somebody else sent."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "can_fork", lambda: False)
    assert all(each.data is not None for each in all_of(Processes(1), tasks[:1], None))


def test_a_process_with_threads_is_not_forked() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    assert not can_fork()
    over.set()
    thread.join()


def test_what_libraries_print_is_no_message(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: True)
    monkeypatch.setattr(worker, "map_file", lambda task: (os.write(1, b"noise"), map_file(task))[1])
    found = all_of(Processes(1), tasks[:1], None)
    assert found[0].data is not None
    assert capfd.readouterr() == ("", "noise")


def test_a_file_that_kills_every_process_is_named_and_the_rest_goes_on(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = worker.send

    def deadly(file: Any, task: Any) -> None:
        if task.path == tasks[1].path:
            raise BrokenPipeError
        send(file, task)

    monkeypatch.setattr(processes, "send", deadly)
    found = all_of(Processes(1), tasks, None)
    assert [each.data is None for each in found] == [False, True, False, False]
    assert "the process that read it was killed" in found[1].why


class FakeRay:
    """Ray's interface, in this process: nodes that have some of the files, and tasks that fail at first."""

    def __init__(self, holds: dict[str, list[str]], lost: str = "") -> None:
        self.holds, self.lost = holds, lost
        self.options: list[dict[str, Any]] = []
        self.util = SimpleNamespace(
            scheduling_strategies=SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node_id, soft: node_id)
        )

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": node, "Alive": True} for node in self.holds] + [{"NodeID": "dead", "Alive": False}]

    def remote(self, function: Callable[..., Any]) -> Any:
        def options(**given: Any) -> Any:
            def call(argument: Any) -> Any:
                node = str(given.get("scheduling_strategy"))
                if function.__name__ == "_present":
                    return ("done", [path for path in argument if path in self.holds[node]])
                self.options.append(given)
                if self.lost and self.lost.encode() in argument:
                    return ("lost", len(self.options))
                return ("done", function(argument))

            return SimpleNamespace(remote=call)

        return SimpleNamespace(options=options)

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: Any) -> Any:
        if isinstance(reference, list):
            return [self.get(each) for each in reference]
        state, value = reference
        if state == "lost":
            raise RuntimeError("the node died")
        return value


def test_ray_reads_each_file_on_a_node_that_has_it(tasks: list[Task]) -> None:
    paths = [task.path for task in tasks]
    fake = FakeRay({"one": paths[:2], "two": paths[2:], "three": []})
    found = all_of(Ray("ray", fake), tasks, None)
    assert all(each.data is not None for each in found)
    assert [given["scheduling_strategy"] for given in fake.options] == ["one", "one", "two", "two"]
    assert {given["max_retries"] for given in fake.options} == {3}


def test_files_on_a_shared_disk_are_read_anywhere(tasks: list[Task]) -> None:
    paths = [task.path for task in tasks]
    fake = FakeRay({"one": paths, "two": paths})
    all_of(Ray("ray", fake), tasks, None)
    assert not any("scheduling_strategy" in given for given in fake.options)


def test_a_rank_whose_node_is_lost_is_named(tasks: list[Task]) -> None:
    fake = FakeRay({"one": [task.path for task in tasks]}, lost="rank2.json")
    found = all_of(Ray("ray", fake), tasks, None)
    assert [each.why for each in found if each.data is None] == ["its node or worker was lost (RuntimeError)"]
    assert [each.data is None for each in found] == [False, False, True, False]


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UsageError, match=r"^on=ray://head:10001: Ray is not installed; pip install 'unstall\[ray\]'"):
        executor_of("ray://head:10001")


def test_without_rays_client_the_extra_is_named_and_has_it() -> None:
    class Bare:
        def is_initialized(self) -> bool:
            return False

        def init(self, **_: object) -> None:
            raise ValueError("Ray Client requires pip package `ray[client]`. If you installed the minimal Ray …")

    with pytest.raises(UsageError, match=r"^--on ray://head:10001: .*without its client; pip install 'unstall\[ray\]'"):
        Ray("ray://head:10001", Bare(), "--on ")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["ray"][0].startswith("ray[client]")


def test_errors_name_the_option_or_the_argument() -> None:
    with pytest.raises(UsageError, match=r"^on=slurm: write ray"):
        executor_of("slurm")
    with pytest.raises(UsageError, match=r"^--on slurm: write ray"):
        executor_of("slurm", "--on ")
