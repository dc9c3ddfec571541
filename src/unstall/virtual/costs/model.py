"""The interface of a GPU's costs, and of its host's: what the simulation asks for.

`answers.py` implements it by the GPU's file in `gpus/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from unstall.timeline.columns import CopyDirection, DeviceKind
from unstall.virtual.costs.signature import Signature


@dataclass(frozen=True, slots=True)
class Kernel:
    """One device op of an operator, by the name that the real one has."""

    name: str
    duration_ns: int
    kind: DeviceKind = DeviceKind.KERNEL
    fills: bool = True
    """Whether it takes the whole device, so that nothing runs beside it but copies."""


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """The cost of one call of an operator."""

    kernels: tuple[Kernel, ...]
    host_ns: int = 0
    """Of the host at work in it, on top of what `HostCosts` has for the records that the call makes: its entry and exit
    (`operator`, `operator_end`), each of its launches, each request for memory. What is measured is their sum: a call
    of `add` that takes 11.2 us from Python is 2.4 us of an operator, 0.9 us of a request for memory, 3.0 us of a launch
    and 4.9 us of `host_ns`. Of operators within it that make records of their own nothing is in it."""
    temporaries: tuple[tuple[int, ...], ...] = ()
    """Bytes of each allocation that it makes and frees, by pass; a pass can use the memory of those before it."""
    workspaces: tuple[tuple[str, int], ...] = ()
    """(key, bytes) of memory that it allocates once for each stream, and keeps."""


@dataclass(frozen=True, slots=True)
class HostCosts:
    """The host's costs of calls and records, in ns. The defaults: an H200's host, CUDA 13, torch 2.11."""

    operator: int = 2_200
    """From an operator's entry to what it does: what Python hands over, the dispatcher, its argument checks."""
    nested: int = 1_350
    """The same of an operator that another one calls."""
    operator_end: int = 150
    frame: int = 60
    """A Python frame entered and left again."""
    bytecode: int = 12
    """For each two bytes of bytecode from one place to another: with the small calls in between, of attributes and of
    functions that do no torch, as 6 models of transformers spent them on the CPU."""
    cold: int = 6_000
    """The extra cost of an operator that its thread did not call lately: its code is in no near cache. Loops over one
    operator, by which the other figures were measured, never show it; the steps of 15 models do.
    """
    warm_records: int = 48
    """Records of a thread that are lately."""
    mark: int = 1_500
    """An annotation's begin or end."""
    malloc: int = 900
    """A request that the caching allocator serves from its cache."""
    free: int = 300
    launch: int = 2_800
    copy: int = 2_500
    memset: int = 2_000
    event_record: int = 900
    event_wait: int = 700
    event_query: int = 600
    synchronize: int = 1_500
    """A wait for a stream or an event that finds everything done."""
    synchronize_device: int = 7_000
    """… for a whole device."""
    graph_launch: int = 4_800
    graph_node: int = 8
    capture: int = 1_200
    """A call while a graph is captured."""
    device_malloc: int = 60_000
    device_free: int = 45_000
    pin: int = 20_000
    pin_mib: int = 12_000
    """For each MiB of host memory that is pinned: 86 GB/s."""
    clock_read: int = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """The device's latencies and limits; times in ns. The defaults: H200, CUDA 13."""

    queue_capacity: int = 1022
    """Launches outstanding on a stream when the next one blocks."""
    gap: int = 900
    """From the end of an op to the start of the next one of its stream."""
    graph_gap: int = 160
    launch_latency: int = 3_000
    """From the end of the launching call to its op's start on an idle device."""
    copy_latency: int = 1_500
    graph_latency: int = 5_000
    event_latency: int = 1_500
    """From the end of an event that a stream waits for to the start of its next op."""
    wake_latency: int = 4_000
    """From the end of work that the host waits for to the host's next action."""
    staged_at_once_bytes: int = 64 << 10
    """An upload from pageable memory up to here goes into the launch queue itself."""
    sleep_cycles_per_us: float = 1_979.0
    """Of torch.cuda._sleep: 1e8 cycles took 50.53 ms."""
    crowding_ns: int = 10_000
    """A shorter kernel never keeps another stream's from running beside it."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The device's facts that a timeline and a program show."""

    name: str
    total_bytes: int
    context_bytes: int
    """Held by the context, and not by any allocation."""


class Costs(Protocol):
    """Answers for one GPU."""

    @property
    def device(self) -> DeviceFacts: ...

    @property
    def host(self) -> HostCosts: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def known_error(self) -> str:
        """How far off these costs were on programs whose times are known: a phrase for notes."""

    def cost(self, signature: Signature) -> OperatorCost:
        """The cost of one call of an operator. Called once for each distinct signature."""

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        """On the copy engine, or on the device's memory within it."""
