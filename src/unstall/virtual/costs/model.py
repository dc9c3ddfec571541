"""The interface between the simulation and the costs of a GPU and its host.

`answers.py` implements the interface with the GPU's file in `gpus/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Protocol

import msgspec

from unstall.timeline.columns import CopyDirection, DeviceKind
from unstall.virtual.costs.collectives import Operation, Transfer
from unstall.virtual.costs.signature import Signature


@dataclass(frozen=True, slots=True)
class Kernel:
    """One device operation (kernel, copy or memset) of an operator. `name` is the name of the real kernel if that name
    is known.
    """

    name: str
    duration_ns: int
    kind: DeviceKind = DeviceKind.KERNEL
    share: int = 1000
    """The fraction of the device's rate that the kernel uses, in thousandths: of the memory bandwidth, or of what the
    multiprocessors compute. Kernels on other streams can use the rest of the device.
    """
    blocks: int = 0
    """The number of thread blocks for each multiprocessor, in thousandths. 0 if it is unknown."""
    size: int = 1
    """The part of a multiprocessor's room that a thread block fills, in thousandths."""
    tail_ns: int = 0
    """How long before its end it leaves the multiprocessors to others, because its last blocks end."""
    cached: int = 0
    """What it reads and writes, in thousandths of what the L2 cache holds."""
    uncached_ns: int = 0
    """How much longer it takes if other kernels used the L2 cache before."""
    host_ns: int = 0
    """The host time before its launch, in addition to the costs of a launch."""


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """The cost of one call of an operator."""

    kernels: tuple[Kernel, ...]
    host_ns: int = 0
    """The host time of the work inside the operator. The costs in `HostCosts` are added to it: the operator's entry and
    exit (`operator`, `operator_end`), each launch and each allocation. Example: a call of `add` takes 8.1 us from
    Python: 1.25 us for the operator, 1.2 us for an allocation, 3.0 us for a launch and 2.7 us of `host_ns`. A nested
    operator is not included if the log has records of it."""
    temporaries: tuple[tuple[int, ...], ...] = ()
    """The bytes of each temporary allocation. The operator works in passes, and there is one tuple of allocations for
    each pass. A pass can reuse the memory of earlier passes.
    """
    workspaces: tuple[tuple[str, int], ...] = ()
    """(key, bytes) of each workspace. A workspace is allocated once for each stream and is not freed after the call."""
    fallback: OperatorCost | None = None
    """The cost of the call if the device has no room for `temporaries`. None if the call then fails."""


@dataclass(frozen=True, slots=True)
class HostCosts:
    """The host time of each kind of call and of each kind of record in the shim's log, in ns. Defaults were measured on
    the hosts of an H200 and an H100, with CUDA 13 and torch 2.11, unless they are said to be fitted.
    """

    operator: int = 1_100
    """The time from the call of an operator to the start of its computation: the Python binding, the dispatcher, the
    argument checks.
    """
    nested: int = 700
    """Like `operator`, but for an operator that another operator calls."""
    node: int = 8_000
    """What autograd's engine adds to an operator that it calls in a thread of its own. It is fitted, like `cold`.
    """
    operator_end: int = 150
    frame: int = 2_000
    """The cost of entering and leaving a Python frame. Includes what the function does in C, such as attribute lookups
    of modules. It is fitted, like `cold`."""
    bytecode: int = 6
    """The cost of one bytecode instruction (two bytes) that runs between two records of the log. It includes small
    calls that do not use torch.
    """
    cold: int = 10_000
    """The extra cost of an operator that the thread did not call recently, because the operator's code is no longer in
    the CPU caches. The other costs were measured in loops over one operator, so they do not include this extra cost. It
    is fitted to the CPU times of 6 transformers models, in inference and training.
    """
    warm_records: int = 64
    """The thread called an operator recently if the operator is among this many last records of the thread."""
    mark: int = 3_200
    """The begin or the end of an annotation. An empty `record_function` took 6.5 us on an H100's host."""
    nvtx: int = 150
    """The begin or the end of an NVTX range, without a tool that listens. A push and a pop took 0.3 us on an H100's
    host."""
    malloc: int = 900
    """An allocation that the caching allocator serves from its cache."""
    free: int = 300
    staged_bytes_per_us: int = 13_000
    """The rate at which the driver copies pageable memory into its pinned pieces: 1 MiB took 78 us more than 4 KiB."""
    launch: int = 3_000
    copy: int = 2_500
    memset: int = 2_000
    event_record: int = 900
    event_wait: int = 700
    event_query: int = 600
    synchronize: int = 1_500
    """Synchronizing a stream or an event whose work is already done."""
    synchronize_device: int = 7_000
    """Synchronizing a whole device whose work is already done."""
    graph_launch: int = 4_800
    graph_node: int = 8
    capture: int = 1_200
    """A call during graph capture."""
    device_malloc: int = 60_000
    device_free: int = 45_000
    pin: int = 20_000
    pin_page: int = 47
    """The cost of pinning one page of 4 KiB. It corresponds to 86 GB/s."""
    clock_read: int = 50
    cores: int = 16
    """The number of CPU cores for operators on CPU tensors. The rates below are those of one core of a server (AMD
    EPYC). Only `all_memory_bytes_per_us` is a rate of all cores together. It is typical of one socket of a server."""
    flops_per_us: int = 95_000
    """The rate of each core in matrix products of float32. The rate in float64 is half of this rate."""
    scalar_flops_per_us: int = 3_900
    """The rate of each core in simple C++ loops that process one number at a time."""
    cached_bytes: int = 32 << 20
    """If an operator reads and writes at most this many bytes, the bytes are in the CPU caches."""
    cached_bytes_per_us: int = 70_000
    """The rate at which each core reads and writes its caches."""
    memory_bytes_per_us: int = 28_000
    """The rate at which each core reads and writes main memory."""
    all_memory_bytes_per_us: int = 200_000
    page: int = 1_600
    """The cost of the first use of a page of 4 KiB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The device's latencies and limits. Times are in ns. Defaults were measured on an H200 with CUDA 13."""

    queue_capacity: int = 1022
    """The number of outstanding launches on a stream at which the next launch blocks."""
    gap: int = 900
    """The time from the end of a device operation to the start of the next operation on the same stream."""
    graph_gap: int = 160
    """Like `gap`, but within a graph."""
    branch_gap: int = 220
    """What is added to `graph_gap` if the graph has several branches, because they are launched in turn. Fitted to
    pairs of kernels of up to 12 us on an H100.
    """
    launch_latency: int = 3_000
    """The time from the end of the launch call to the start of the launched operation on an idle device."""
    copy_latency: int = 1_500
    graph_latency: int = 5_000
    event_latency: int = 1_500
    """The time from the completion of an event to the start of the next operation on a stream that waits for the
    event.
    """
    wake_latency: int = 4_000
    """The host waits for device work. This is the time from the end of the device work to the end of the host's wait.
    """
    staged_at_once_bytes: int = 64 << 10
    """A host-to-device copy of at most this many bytes from pageable memory does not block the host. The launch queue
    itself carries the bytes of the copy.
    """
    sleep_cycles_per_us: float = 1_979.0
    """The clock rate of torch.cuda._sleep: 1e8 cycles took 50.53 ms."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The device's properties that timelines and programs see."""

    name: str
    total_bytes: int
    context_bytes: int
    """The device memory of the CUDA context. It is not part of any allocation."""


class SecondCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much longer an operator's second call takes than later calls, because the code is not in the CPU caches yet.

    This extra time is shorter if the process has called more operators before, because operators share code.

    Attributes:
        ns: The part of the extra time that is equal for all operators.
        share: The other part of the extra time, divided by the time of a later call. The time of a later call includes
            the wait for the device.
        operators: After the process has called this number of operators, each part is shorter by a factor of e.
    """

    ns: int = 0
    share: float = 0.0
    operators: float = 1.0

    def extra_ns(self, later_ns: float, known: int) -> float:
        """Returns the extra ns of a call. `later_ns` is the time of a later call, `known` is the number of operators
        called before."""
        return (self.ns + self.share * min(later_ns, LONG_NS)) * math.exp(-known / self.operators)


LONG_NS = 80_000
"""If a call takes longer than this, its device does."""


class Startup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the first uses of CUDA, of a device and of operators cost the host, in ns. `startup.py` measures these
    costs. The defaults are 0.

    Attributes:
        init: The first use of CUDA in a process.
        context: The first use of a device.
        second: How much longer the second call of an operator takes than later calls.
        kernels: The first launch of each operator, without the time to load the module of its kernels.
        modules: (ns, operators) for each kernel module that CUDA loads and each library that is set up. The first call
            among the operators takes the extra ns. Later calls do not.
    """

    init: int = 0
    context: int = 0
    second: SecondCall = SecondCall()
    kernels: dict[str, int] = {}
    modules: list[tuple[int, list[str]]] = []


class Costs(Protocol):
    """The costs of one GPU and its host."""

    @property
    def device(self) -> DeviceFacts: ...

    @property
    def host(self) -> HostCosts: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def startup(self) -> Startup: ...

    @property
    def launched_by(self) -> Mapping[str, Set[str]]:
        """By kernel name: the operators of `startup.kernels` that launch this kernel."""

    @property
    def known_error(self) -> str:
        """The prediction error on programs whose real times are known, as a phrase for notes."""

    def cost(self, signature: Signature) -> OperatorCost:
        """Returns the cost of one operator call. Called once for each distinct signature."""

    def guess(self, signature: Signature) -> OperatorCost:
        """Returns a rough cost of a call for which `cost` raised an error. Works for any signature."""

    def host_work_ns(self, signature: Signature, threads: int) -> int:
        """Returns how long an operator computes on the CPU, in ns. Called once for each distinct signature and number
        of threads.

        `threads` is the number of threads that the program set, or 0 if it set none.
        """

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        """Returns the duration of a copy in ns. `pinned` tells whether the host memory is pinned."""

    def transfer(self, operation: Operation, size_bytes: int, ranks: int) -> Transfer:
        """Returns how NCCL moves the bytes of an operation. The arguments are those of `collectives.chosen_way`."""
