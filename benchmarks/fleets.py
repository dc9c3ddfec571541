"""How much time and memory a job of many ranks takes.

Usage: python -m benchmarks.fleets [--ranks 8,64,256] [--megabytes 50] [--folder FOLDER] [--out FILE] [--ray NODES]

Writes the trace of each rank (a data-parallel training with one slow rank), explains the job, and prints for each
number of ranks: the time of the map and of the join, the largest memory of all processes together, and the size of a
summary. `--ray NODES` explains it again on a local Ray cluster of so many nodes, kills a worker once half of
the ranks are read, and compares the answers. Traces are removed afterwards.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from unstall._version import __version__
from unstall.fleets.executors import Processes
from unstall.fleets.fleet import explain_fleet
from unstall.fleets.result import FleetResult
from unstall.fleets.summarise import summarise

_STEPS, _COLLECTIVES = 6, 24
_TRIAL_KERNELS = 40 * _COLLECTIVES  # of a step whose text tells how many kernels a file of a given size has
_SLOW_RANK, _SLOWER = 3, 1.2
_NAMES = "gemm", "softmax", "norm", "add"


class _Clock:
    """Writes the events of a rank: the host enqueues work, which runs on one stream that computes
    and one that communicates.
    """

    def __init__(self, rank: int, ranks: int, slower: float) -> None:
        self.events: list[str] = []
        self.host = self.stream = self.comm = 0.0
        self.rank, self.ranks, self.slower, self.number = rank, ranks, slower, 0

    def add(self, category: str, name: str, start: float, length: float, thread: int, args: str) -> None:
        process = 0 if category == "kernel" else 400
        self.events.append(
            f'{{"ph":"X","cat":"{category}","name":"{name}","pid":{process},"tid":{thread},'
            f'"ts":{start:.3f},"dur":{length:.3f},"args":{{{args}}}}}'
        )

    def kernel(self, name: str, us: float, line: int) -> None:
        self.number += 1
        begin = self.host
        self.host += 5
        start = max(self.host + 2, self.stream)
        self.stream = start + us * self.slower
        linked = f'"correlation":{self.number}'
        stack = f'"Python id":{self.number},"Python parent id":null,"Python module id":0'
        self.add("python_function", f"model.py({line}): forward", begin - 2, 8, 400, stack)
        self.add("cpu_op", f"aten::{name}", begin - 1, 6.5, 400, f'"External id":{self.number}')
        self.add("cuda_runtime", "cudaLaunchKernel", begin, 5, 400, f'{linked},"External id":{self.number}')
        shape = f'"device":0,"stream":7,{linked},"grid":[64,1,1],"External id":{self.number}'
        self.add("kernel", f"{name}_kernel", start, us * self.slower, 7, shape)
        self.host += 3

    def all_reduce(self, sequence: int, us: float, latest: Callable[[float], float]) -> None:
        self.number += 1
        told = (
            f'"Collective name":"allreduce","In msg nelems":1048576,"Out msg nelems":1048576,"Group size":{self.ranks},'
            f'"dtype":"Float","Process Group Name":"0","Process Group Description":"default_pg",'
            f'"Process Group Ranks":"{list(range(self.ranks))}","Seq":{sequence}'
        )
        start = max(self.host + 7, self.stream, self.comm)
        self.comm = max(latest(start), start) + us
        linked = f'"correlation":{self.number}'
        self.add("cpu_op", "record_param_comms", self.host - 1, 8, 400, f'"External id":{self.number},{told}')
        self.add("cuda_runtime", "cudaLaunchKernelExC", self.host, 5, 400, f'{linked},"External id":{self.number}')
        kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        self.add("kernel", kernel, start, self.comm - start, 20, f'"device":0,"stream":20,{linked},{told}')
        self.host += 8
        self.stream = self.comm  # the model needs it at once

    def step(self, number: int, kernels: int, first: int, latest: Callable[[int], Callable[[float], float]]) -> None:
        begin = self.host
        self.host += 4
        for each in range(_COLLECTIVES):
            for at in range(kernels // _COLLECTIVES):
                self.kernel(_NAMES[at % 4], 14, 20 + each)
            self.all_reduce(first + each, 40, latest(first + each))
        self.number += 1
        end = max(self.host + 5, self.stream)
        self.add(
            "cuda_runtime", "cudaDeviceSynchronize", self.host, end - self.host, 400, f'"correlation":{self.number}'
        )
        self.host = end + 5
        self.add("user_annotation", f"ProfilerStep#{number}", begin, self.host - begin, 400, "")
        self.host += 2


def _events(rank: int, ranks: int, kernels: int, latest: Callable[[int], Callable[[float], float]]) -> list[str]:
    clock = _Clock(rank, ranks, _SLOWER if rank == _SLOW_RANK else 1.0)
    for number in range(_STEPS):
        clock.step(number, kernels, number * _COLLECTIVES, latest)
    return clock.events


def write_job(folder: Path, ranks: int, megabytes: float) -> None:
    """Writes the traces of a job. One rank computes a fifth more slowly, so the others wait for it."""
    trial = _events(0, ranks, _TRIAL_KERNELS, lambda sequence: lambda start: start)
    kernels = max(_COLLECTIVES, round(megabytes * 1e6 / sum(len(event) + 2 for event in trial) * _TRIAL_KERNELS))
    arrivals: dict[int, float] = {}

    def noting(sequence: int) -> Callable[[float], float]:
        def latest(start: float) -> float:
            arrivals[sequence] = start
            return start

        return latest

    slow = _events(_SLOW_RANK, ranks, kernels, noting)
    fast = _events(0, ranks, kernels, lambda sequence: lambda start: arrivals[sequence])
    for rank in range(ranks):
        events = slow if rank == _SLOW_RANK else fast
        head = f'{{"schemaVersion":1,"baseTimeNanoseconds":0,"distributedInfo": {{"backend": "nccl", "rank": {rank},'
        head += f'"world_size":{ranks}}},"deviceProperties":[{{"id":0,"name":"NVIDIA H200"}}],"traceEvents":[\n'
        (folder / f"rank{rank}.json").write_text(head + ",\n".join(events) + "\n]}")


def write_apart(folder: Path, ranks: int, megabytes: float) -> None:
    """Writes the traces in another process, so that its memory is not counted."""
    writer = multiprocessing.get_context("spawn").Process(target=write_job, args=(folder, ranks, megabytes))
    writer.start()
    writer.join()
    if writer.exitcode:
        raise SystemExit(f"the traces cannot be written (exit code {writer.exitcode})")


class _Memory:
    """Measures the most memory that this process and its children had at one time. Memory that
    processes share counts in proportion, as the kernel reports it.
    """

    def __enter__(self) -> _Memory:
        self.most_bytes, self._over = 0, threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            self.most_bytes = max(self.most_bytes, memory_of(os.getpid()))


def memory_of(root: int) -> int:
    """Returns how many bytes of memory a process and its descendants have. Memory that processes
    share counts in proportion, as the kernel reports it.
    """
    return sum(map(_share_of, _family(root)))


def _family(root: int) -> Iterator[int]:
    yield root
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def _share_of(process: int) -> int:
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


class _Progress:
    """Notes when the last rank was read, and calls `halfway` once half of them are."""

    def __init__(self, halfway: Callable[[], None] | None = None) -> None:
        self._halfway, self.read = halfway, 0.0

    def __call__(self, done: int, total: int) -> None:
        self.read = time.perf_counter()
        if self._halfway is not None and done == total // 2:
            threading.Thread(target=self._halfway, daemon=True).start()


def measured(folder: Path, ranks: int) -> tuple[dict[str, Any], FleetResult]:
    """Explains a job. Returns how much time and memory that took, and the result."""
    sizes = [path.stat().st_size for path in folder.iterdir()]
    progress = _Progress()
    begin = time.perf_counter()
    with _Memory() as memory:
        result = explain_fleet(folder, cache=False, on=Processes(), progress=progress)
    end = time.perf_counter()
    return {
        "ranks": ranks,
        "megabytes_each": round(sum(sizes) / len(sizes) / 1e6, 1),
        "seconds": round(end - begin, 2),
        "map_seconds": round(progress.read - begin, 2),
        "join_seconds": round(end - progress.read, 2),
        "seconds_a_rank": round((end - begin) / ranks, 3),
        "most_memory_mb": round(memory.most_bytes / 1e6),
        "summary_kb": round(len(summarise(folder / "rank0.json")) / 1e3, 1),
        "stragglers": [each.rank for each in result.stragglers],
    }, result


def on_ray(folder: Path, nodes: int) -> tuple[float, bool, FleetResult]:
    """Explains a job on a local Ray cluster, and kills a worker once half of the ranks are read.

    Returns:
        The time in seconds, whether the worker that was killed was reading a rank, and the result.
    """
    from unstall.fleets.on_ray import Ray

    ray = import_module("ray")
    cluster = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        killed: list[int] = []
        begin = time.perf_counter()
        progress = _Progress(lambda: _kill_one_worker(killed))
        result = explain_fleet(folder, cache=False, on=Ray("ray", ray), progress=progress)
        return time.perf_counter() - begin, bool(killed), result
    finally:
        ray.shutdown()
        cluster.shutdown()


def _kill_one_worker(killed: list[int]) -> None:
    """Kills a process of the Ray cluster that reads a rank, and adds its id to `killed`. The
    processes of the cluster are descendants of this one.
    """
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for process in _family(os.getpid()):
            try:
                busy = b"ray::_map_encoded" in Path(f"/proc/{process}/cmdline").read_bytes()
                if busy:
                    os.kill(process, signal.SIGKILL)
            except OSError:
                continue
            if busy:
                killed.append(process)
                return
        time.sleep(0.02)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="8,64,256")
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ray", type=int, default=0)
    args = parser.parse_args(arguments)
    rows = []
    for ranks in map(int, args.ranks.split(",")):
        folder = Path(tempfile.mkdtemp(prefix="unstall-fleet-", dir=args.folder))
        try:
            write_apart(folder, ranks, args.megabytes)
            row, result = measured(folder, ranks)
            if args.ray:
                seconds, killed, other = on_ray(folder, args.ray)
                row |= {"ray_nodes": args.ray, "ray_seconds": round(seconds, 2), "ray_worker_killed": killed}
                row["ray_same"] = other == result
        finally:
            shutil.rmtree(folder)
        print(json.dumps(row), flush=True)
        rows.append(row)
        if args.out:
            args.out.write_text(json.dumps({**_about(bool(args.ray)), "rows": rows}, indent=1) + "\n")


def _about(ray: bool) -> dict[str, Any]:
    versions = {"unstall": __version__, "python": platform.python_version(), "numpy": np.__version__}
    if ray:
        versions["ray"] = import_module("ray").__version__
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": today, "versions": versions, "processors": len(os.sched_getaffinity(0))}


if __name__ == "__main__":
    main()
