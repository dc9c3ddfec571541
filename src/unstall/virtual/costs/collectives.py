"""Predicts how long NCCL takes to move bytes between the GPUs of one machine, by NCCL's own model.

NCCL chooses the algorithm and the protocol of a collective by a model of how long each takes:
`ncclTopoTuneModel` and `ncclTopoGetAlgoTime` in src/graph/tuning.cc (NVIDIA/nccl, commit 5067397c,
2026). This module is the part of that model for one machine, with the same constants. How the GPUs
are connected is in the file of the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import msgspec

Operation = Literal["AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "SendRecv"]
_Protocols: TypeAlias = dict[str, float]


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the GPUs of one machine are connected.

    Attributes:
        kind: "NVLink" or "PCIe".
        bytes_per_ns: The rate at which a ring of the GPUs moves bytes in each direction, as NCCL
            computes it: its bandwidth per link (src/graph/topo.h) times the number of links,
            rounded down to a rate that its search for rings tries (search.cc).
        switch_adds: Whether a switch between the GPUs computes sums (NVLink SHARP).
    """

    kind: Literal["NVLink", "PCIe"]
    bytes_per_ns: float
    switch_adds: bool = False


PCIE = Links("PCIe", 12.0)
"""The links that are assumed for a GPU whose file names none: PCIe 3.0 with 16 lanes."""

_BASE_US = {"Tree": {"LL": 6.8, "LL128": 14.0, "Simple": 8.4}, "Ring": {"LL": 6.6, "LL128": 14.0, "Simple": 8.4}}
_HOP_US: dict[str, dict[str, _Protocols]] = {
    "NVLink": {
        "Tree": {"LL": 0.6, "LL128": 1.25, "Simple": 4.0},
        "Ring": {"LL": 0.6, "LL128": 1.9, "Simple": 3.4},
    },
    "PCIe": {"Tree": {"LL": 1.0, "LL128": 1.9, "Simple": 4.0}, "Ring": {"LL": 1.0, "LL128": 2.5, "Simple": 5.7}},
}
_SWITCH_US = 25.0
_TREE_FACTORS = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
"""By protocol, the share of its bandwidth that a tree reaches. The first share is for 64 bytes, and
each further one for twice as many.
"""
_SWITCH_EFFICIENCY = 0.85
_SWITCH_RATES = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
"""The rates, in bytes per ns, that NCCL tries for the part of a switch that one rank uses (search.cc)."""
_MESSAGE_EFFICIENCY = 0.81
"""The share of `Links.bytes_per_ns` that a send reaches. Between A100s, sendrecv_perf of nccl-tests
reached 195 of 240 GB/s (li-plus/playground, cuda/nccl.md). tuning.cc has no model of sends.
"""


class _Generation(NamedTuple):
    """Limits of the rates of one generation of GPUs, in bytes per ns.

    Attributes:
        ll: The limit of the protocol LL.
        tree: The limit of one channel of a tree.
    """

    ll: float
    tree: float


def _generation(capability: tuple[int, int]) -> _Generation:
    if capability >= (9, 0):
        return _Generation(141.0, 38.7)
    return _Generation(87.7, 24.0) if capability >= (8, 0) else _Generation(39.0, 26.5)


_CHANNELS = 12
"""The number of channels of a tree. With so many, a tree between GPUs with NVLink is limited only by the links."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way in which NCCL can run an operation: an algorithm and a protocol, with the time they
    take.

    Attributes:
        algorithm: "Ring", "Tree" or "NVLS".
        protocol: "LL", "LL128" or "Simple".
        latency_us: How long an operation without bytes takes, in µs.
        bytes_per_ns: The bytes of an operation, over the time that it takes besides the latency.
    """

    algorithm: str
    protocol: str
    latency_us: float
    bytes_per_ns: float

    def takes_us(self, operation: str, size_bytes: int) -> float:
        """Returns how long an operation of `size_bytes` takes in this way, in µs."""
        rate = self.bytes_per_ns
        if self.algorithm == "Tree" and operation == "AllReduce" and size_bytes >= 64:
            factors = _TREE_FACTORS[self.protocol]
            power = (size_bytes >> 6).bit_length() - 1
            rate *= factors[power] if power < len(factors) else 1.0
        return self.latency_us + size_bytes / (1000 * rate)


@lru_cache(maxsize=512)
def ways(operation: Operation, links: Links, capability: tuple[int, int], ranks: int) -> tuple[Way, ...]:
    """Returns the ways in which NCCL can run an operation.

    Args:
        operation: The operation of NCCL.
        links: How the GPUs are connected.
        capability: The compute capability of the GPUs.
        ranks: The number of ranks, at least two. All are on one machine.
    """
    if operation == "SendRecv":
        hop = _HOP_US[links.kind]["Ring"]["LL"]
        return (Way("Ring", "LL", _BASE_US["Ring"]["LL"] + hop, links.bytes_per_ns * _MESSAGE_EFFICIENCY),)
    steps = {"AllReduce": 2 * (ranks - 1), "AllGather": ranks - 1, "ReduceScatter": ranks - 1}.get(operation, ranks)
    generation = _generation(capability)
    protocols = ("LL", "LL128", "Simple") if links.kind == "NVLink" else ("LL", "Simple")
    found = []
    for protocol in protocols:
        rate = links.bytes_per_ns
        rate = {"LL": min(generation.ll, rate / 2), "LL128": rate * 0.92}.get(protocol, rate)
        hops = 1 if operation in ("Broadcast", "Reduce") else steps
        latency = _BASE_US["Ring"][protocol] + hops * _HOP_US[links.kind]["Ring"][protocol]
        found.append(Way("Ring", protocol, latency, rate * ranks / steps))
        if operation == "AllReduce":
            rate = min(links.bytes_per_ns * 0.92, _CHANNELS * generation.tree)
            rate = {"LL": min(rate / 3.8, generation.ll), "LL128": rate * 7 / 9}.get(protocol, rate)
            latency = _BASE_US["Tree"][protocol] + 2 * (ranks - 1) * _HOP_US[links.kind]["Tree"][protocol]
            found.append(Way("Tree", protocol, latency, rate / 2))
    if links.switch_adds and operation == "AllReduce" and ranks > 2:
        each = next((rate for rate in _SWITCH_RATES if rate * ranks <= links.bytes_per_ns), _SWITCH_RATES[-1])
        rate = 2 * each * ranks * _SWITCH_EFFICIENCY * (ranks - 1) / ranks
        found.append(Way("NVLS", "Simple", _SWITCH_US, rate * ranks / steps))
    return tuple(found)


def chosen_way(operation: Operation, size_bytes: int, links: Links, capability: tuple[int, int], ranks: int) -> Way:
    """Returns the way in which NCCL runs an operation. NCCL chooses the one that its model says is
    the fastest.

    Args:
        operation: The operation of NCCL.
        size_bytes: How many bytes each rank passes. For AllGather and ReduceScatter, the bytes of
            all ranks together.
        links: How the GPUs are connected.
        capability: The compute capability of the GPUs.
        ranks: The number of ranks, at least two.
    """
    return min(ways(operation, links, capability, ranks), key=lambda way: way.takes_us(operation, size_bytes))


class Transfer(NamedTuple):
    """How NCCL runs an operation.

    Attributes:
        ns: How long the operation takes once all ranks are ready, in ns.
        algorithm: "Ring", "Tree" or "NVLS".
    """

    ns: int
    algorithm: str


def transfer(operation: Operation, size_bytes: int, links: Links, capability: tuple[int, int], ranks: int) -> Transfer:
    """Returns how NCCL runs an operation, and how long it takes. The arguments are those of `chosen_way`."""
    way = chosen_way(operation, size_bytes, links, capability, ranks)
    return Transfer(round(1000 * way.takes_us(operation, size_bytes)), way.algorithm)
