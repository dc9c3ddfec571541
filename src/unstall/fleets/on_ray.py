"""Summarises traces on a Ray cluster. Each trace is read on a node whose disk has it, and only the summary is sent over
the network."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from unstall.decoding import from_msgpack
from unstall.errors import UsageError
from unstall.fleets.cache import prune
from unstall.fleets.mapping import Mapped, Task, files_of_glob, map_file

_INSTALL = "pip install 'unstall[ray]'"
_CLIENT = "ray[client]"  # what Ray's error says to install
_RETRIES = 3  # of a task whose worker or node died


class Ray:
    """Summarises traces on a Ray cluster.

    Args:
        on: "ray" for the cluster that the environment variable RAY_ADDRESS names, or for a cluster on this machine.
            "ray://HOST:PORT" for the cluster at this address.
        ray: The module `ray`. None: it is imported. Tests may pass another object.
        named: What errors call `on`, with what stands between it and its value, such as "--on ".

    Raises:
        UsageError: Ray or its client is not installed, or there is no cluster at that address.
    """

    def __init__(self, on: str = "ray", ray: Any = None, named: str = "on=") -> None:
        if ray is None:
            try:
                ray = import_module("ray")
            except ImportError:
                raise UsageError(f"{named}{on}: Ray is not installed; {_INSTALL}") from None
        self._ray = ray
        address = None if on == "ray" else on
        if not ray.is_initialized():
            try:
                ray.init(address=address, ignore_reinit_error=True, logging_level="ERROR", log_to_driver=False)
            except (ConnectionError, ImportError, RuntimeError, ValueError) as error:
                if _CLIENT in str(error):
                    raise UsageError(f"{named}{on}: Ray is installed without its client; {_INSTALL}") from None
                raise UsageError(f"{named}{on}: no Ray cluster can be reached there ({error})") from None

    def run(self, tasks: Sequence[Task]) -> Generator[Mapped, None, None]:
        """Yields the outcome of each task as soon as it is known, in any order. If a worker dies, its task is tried
        again up to three times, possibly on another node."""
        ray = self._ray
        nodes = self._nodes()
        holders = self._holders(tasks, nodes)
        remote = ray.remote(_map_encoded)
        waiting: dict[Any, Task] = {}
        for task in tasks:
            options: dict[str, Any] = {"max_retries": _RETRIES, "num_cpus": 1}
            held = holders.get(task.path, [])
            if held and len(held) < len(nodes):
                options["scheduling_strategy"] = self._at(held[0])
            waiting[remote.options(**options).remote(msgspec.msgpack.encode(task))] = task
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            task = waiting.pop(done)
            try:
                yield from_msgpack(ray.get(done), Mapped)
            except Exception as error:  # Ray has its own tree of errors, for dead workers, nodes and objects
                yield Mapped(path=task.path, why=f"its node or worker was lost ({type(error).__name__})")

    def find(self, pattern: str) -> list[str]:
        """Returns the paths of the files that match a glob on any node of the cluster. A path that several nodes have
        is returned once."""
        remote = self._ray.remote(files_of_glob)
        asked = [
            remote.options(num_cpus=0, scheduling_strategy=self._at(node)).remote(pattern) for node in self._nodes()
        ]
        return sorted({path for found in self._ray.get(asked) for path in found})

    def _nodes(self) -> list[str]:
        return [node["NodeID"] for node in self._ray.nodes() if node.get("Alive")]

    def _at(self, node: str) -> Any:
        return self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=True)

    def _holders(self, tasks: Sequence[Task], nodes: list[str]) -> dict[str, list[str]]:
        """Returns a dict that maps the path of each trace to the ids of the nodes that have a file of this path. If
        there is only one node, returns {}."""
        if len(nodes) < 2:
            return {}
        paths = [task.path for task in tasks]
        remote = self._ray.remote(_present)
        asked = [remote.options(num_cpus=0, scheduling_strategy=self._at(node)).remote(paths) for node in nodes]
        found: dict[str, list[str]] = {}
        for node, present in zip(nodes, self._ray.get(asked), strict=True):
            for path in present:
                found.setdefault(path, []).append(node)
        return found


def _map_encoded(task: bytes) -> bytes:
    mapped = map_file(from_msgpack(task, Task))
    prune()  # each node has a cache of its own
    return msgspec.msgpack.encode(mapped)


def _present(paths: list[str]) -> list[str]:
    return [path for path in paths if Path(path).exists()]
