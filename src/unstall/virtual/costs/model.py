"""What the simulation asks of the costs of a GPU and its host. `measured_costs.py` answers it from the
files of GPUs in `gpus/`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import msgspec

from unstall.timeline.columns import CopyDirection, DeviceKind
from unstall.virtual.costs.collectives import Operation, Transfer
from unstall.virtual.costs.signature import Signature
from unstall.virtual.log import TorchCall

HOST_WAIT = "cudaStreamSynchronize"
"""The name of a `Kernel` that is none: the host waits until those before it have ended."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A device op of an operator: a kernel, a copy or a memset; or a wait of the host for those before it.

    Attributes:
        name: The name that the real kernel has, if it is known.
        duration_ns: How long it runs.
        kind: Whether it is a kernel, a copy or a memset.
        share: How much of the device it uses, in thousandths: by how much longer a loop of it takes beside another
            such loop on another stream. It is 1000 if they take as long as one after the other.
        blocks: How many thread blocks it has per multiprocessor, in thousandths; 0 if it is
            unknown.
        size: How much of a multiprocessor's room for thread blocks one block takes, in thousandths.
        cached: How much it reads and writes, in thousandths of the size of the L2 cache.
        uncached_ns: How much longer it takes if other kernels used the L2 cache before it.
        again: How long it runs if it repeats one of the last kernels of its stream, and its data is still in the L2
            cache, in thousandths of `duration_ns`.
        host_ns: How long the host works before its launch, in addition to the cost of a launch.
        module: The module that it is in, as a number of `Startup.modules`; -1 if it is unknown.
    """

    name: str
    duration_ns: int
    kind: DeviceKind = DeviceKind.KERNEL
    share: int = 1000
    blocks: int = 0
    size: int = 1
    cached: int = 0
    uncached_ns: int = 0
    again: int = 1000
    host_ns: int = 0
    module: int = -1

    @property
    def is_wait(self) -> bool:
        """Whether the host waits here, as Thrust's algorithms do, and the device does nothing."""
        return self.name == HOST_WAIT


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """What a call of an operator costs.

    Attributes:
        kernels: The device ops that it launches.
        host_ns: The host time of the work within the operator. Not in it are the costs of
            `HostCosts`: `operator` and `operator_end`, each launch and each allocation. Example: a
            call of `add` from Python takes 8.1 µs: 1.25 µs for the operator, 1.2 µs for an
            allocation, 3.0 µs for a launch, and 2.7 µs of `host_ns`. Operators that it calls are
            not in it either, if the log has records of them.
        temporaries: The bytes of each temporary allocation. The operator works in passes, and there
            is a tuple for each pass. A pass can reuse the memory of earlier ones.
        workspaces: The name and the bytes of each workspace. A workspace is allocated once for each
            stream, and not freed after the call.
        first_ns: The host time of what only the first call with these shapes does.
        empties_cache: Whether the caching allocator then gives its free memory back to the driver.
        fallback: What the call costs if the device has no room for `temporaries`; None if the call
            then fails.
    """

    kernels: tuple[Kernel, ...]
    host_ns: int = 0
    temporaries: tuple[tuple[int, ...], ...] = ()
    workspaces: tuple[tuple[str, int], ...] = ()
    first_ns: int = 0
    empties_cache: bool = False
    fallback: OperatorCost | None = None

    @property
    def waits_for(self) -> Literal["value", "upload"] | None:
        """What the operator waits for: "value" if it copies to the host, or waits for its kernels; else "upload" if it
        copies from the host; else None.
        """
        names = [kernel.name for kernel in self.kernels if kernel.name.startswith("Memcpy")]
        if any("DtoH" in name for name in names) or any(kernel.is_wait for kernel in self.kernels):
            return "value"
        return "upload" if any("HtoD" in name for name in names) else None

    @property
    def may_wait(self) -> bool:
        """Whether a launch of the operator may make the host wait: for a copy, or for memory."""
        return bool(self.temporaries or self.workspaces or self.waits_for)


@dataclass(frozen=True, slots=True)
class HostCosts:
    """What each kind of call and each kind of record of the shim's log costs the host, in ns. The
    defaults were measured on the hosts of an H200 and an H100, with CUDA 13 and torch 2.11, except
    those that are said to be fitted or typical.
    """

    operator: int = 1_100
    """From the call of an operator in Python to the start of its own work: the Python binding, the
    dispatcher, and the checks of its arguments.
    """
    nested: int = 50
    """The same as `operator`, for an operator that another operator calls: neither Python nor the lock of its
    interpreter is involved. In a loop on an H200's host, `transpose` took as long as `view` does, which calls none, and
    `chunk` 0.3 us more for each of the seven operators that it calls.
    """
    engine: int = 50_000
    """Waking the engine's thread for a backward pass, and the caller's at its end. An H200's host took 46 to 82 us more
    for the backward of one to ten sines than these other costs are.
    """
    node: int = 8_000
    """What the engine of autograd adds to each operator that it calls on a thread of its own.
    `node`, `foreign_recorded` and `cold_use` are fitted to the phases of a training step of nine models
    (`benchmarks/host_phases.py`).
    """
    recorded: int = 1_500
    """What it takes autograd to record a node in a forward pass, and to save what the node needs in
    the backward pass. In loops on an H200's host: 0.6 to 1 us for a view, 1.5 to 3 us for other operators.
    """
    foreign_recorded: int = 6_500
    """The same if the node is in memory that a thread of autograd has freed, as it does with the nodes that it runs:
    then that memory is in the caches of another core. Of nine models on four hosts, a forward pass took longer than
    inference by 2 to 12 us for each node, but only by 1.5 us if no backward pass ran in between.
    """
    operator_end: int = 150
    bytecode: int = 18
    """Two bytes of bytecode between two records of the log, with what it does in C and the small calls that do not use
    torch. This, `cold_bytecode`, `warm_others` and `cold_others` are fitted to nine models in inference, and to loops
    over 1 to 48 operators, views and modules, on an H200's host (`benchmarks/host_reuse.py`).
    """
    cold_bytecode: int = 340
    """The same if the thread has begun `cold_others` others since it last began the operator that it began last: then
    the CPU's caches hold little of the code of Python and of torch, and of the data that they work on.
    """
    foreign_free: int = 1_300
    """How much longer it takes to free a tensor that another thread has made, such as a gradient. Of `zero_grad` for
    nine models on three H200s' hosts; an H100's host took 4.5 us. The threads of autograd do not pay it.
    """
    use: int = 140
    """For each range of memory that an operator reads or writes, beyond the first `few_uses`. The operator's own time
    includes those. An H200's host took 0.14 us more for each tensor in the lists of `torch._foreach_add_` and of
    others, of 10 and of 100 (`benchmarks/host_calls.py`).
    """
    few_uses: int = 4
    """Not a time: see `use`."""
    cold_use: int = 800
    """The same after `cold_others` others: then what Python and torch know of the tensors is no longer in the CPU's
    caches, either.
    """
    warm_others: int = 12
    """Not a time: Python code costs no more than `bytecode` if its thread has begun at most so many different other
    operators and functions since it last began the operator that it began last.
    """
    cold_others: int = 96
    """Not a time: from so many on, it costs `cold_bytecode`; in between, a part."""
    mark: int = 3_200
    """The begin of an annotation, and also the end of one. An empty `record_function` took 6.5 µs
    on the host of an H100.
    """
    nvtx: int = 150
    """The begin of a range of NVTX, and also the end of one, if no tool listens. A push with its
    pop took 0.3 µs on the host of an H100.
    """
    malloc: int = 900
    """An allocation that the caching allocator serves from its cache."""
    free: int = 300
    staged_bytes_per_us: int = 13_000
    """Not a time: how many bytes of pageable memory the driver copies into its pinned buffers per
    µs. 1 MiB took 78 µs longer than 4 KiB.
    """
    launch: int = 3_000
    copy: int = 2_500
    memset: int = 2_000
    event_record: int = 900
    event_wait: int = 700
    event_query: int = 600
    synchronize: int = 1_500
    """A call that synchronises a stream or an event, if its work is done already."""
    synchronize_device: int = 7_000
    """A call that synchronises a whole device, if its work is done already."""
    current_stream: int = 4_500
    """What the costs from here to `save_state` are charged for is told by `log.TorchCall`. They are medians of an
    H200's host (`benchmarks/host_calls.py`).
    """
    set_stream: int = 2_700
    new_stream: int = 750
    new_event: int = 700
    memory_stats: int = 80_000
    """torch makes a dict of 150 names."""
    reset_memory_stats: int = 2_400
    memory_info: int = 6_500
    autocast: int = 4_700
    parameter: int = 900
    unscaled: int = 1_000
    choose_attention: int = 8_800
    walk: int = 900
    set_mode: int = 2_050
    seed: int = 108_000
    seed_device: int = 1_700
    rng_state: int = 2_300
    no_grad: int = 1_750
    enable_grad: int = 850
    inference_mode: int = 2_000
    switch_device: int = 750
    set_device: int = 480
    current_device: int = 370
    identity: int = 1_100
    save_state: int = 2_000
    graph_launch: int = 4_800
    graph_node: int = 8
    capture: int = 1_200
    """A call while a CUDA graph is captured."""
    device_malloc: int = 60_000
    device_free: int = 45_000
    pin: int = 20_000
    pin_page: int = 1_400
    """Getting one page of 4 KiB from the operating system, and pinning it. Of an H200's host: 1.4 to 1.6 us for 4 MiB
    to 1 GiB, up to 2.2 us in some processes.
    """
    clock_read: int = 50
    cores: int = 16
    """Not a time: the number of CPU cores that operators on CPU tensors can use. The rates below
    are those of one core of a server (AMD EPYC); only `all_memory_bytes_per_us` is that of all
    cores, and typical of one socket of a server.
    """
    flops_per_us: int = 95_000
    """How many FLOPs per µs a core reaches in matrix products of float32. It reaches half as many in float64."""
    scalar_flops_per_us: int = 3_900
    """How many FLOPs per µs a core reaches in simple C++ loops over single numbers."""
    cached_bytes: int = 32 << 20
    """If an operator reads and writes at most this many bytes, they are in the caches of the CPU."""
    cached_bytes_per_us: int = 70_000
    """How many bytes per µs a core reads and writes in its caches."""
    memory_bytes_per_us: int = 28_000
    """How many bytes per µs a core reads and writes in main memory."""
    all_memory_bytes_per_us: int = 200_000
    page: int = 1_600
    """The first use of a page of 4 KiB."""

    def at_pace(self, pace: float) -> HostCosts:
        """Returns the costs of a host that takes `pace` times as long for calls and for other work of one thread. Rates
        of memory, pages and operators on CPU tensors stay.
        """
        if pace == 1.0:
            return self
        return replace(self, **{name: round(pace * getattr(self, name)) for name in _PACED})


_PACED = (
    *("operator", "nested", "engine", "node", "recorded", "foreign_recorded", "operator_end", "bytecode"),
    *("cold_bytecode", "foreign_free", "use", "cold_use", "mark", "nvtx", "malloc"),
    *("free", "launch", "copy", "memset", "event_record", "event_wait", "event_query", "synchronize"),
    *("synchronize_device", "graph_launch", "graph_node", "capture", "device_malloc", "device_free", "pin"),
    *("clock_read", *(call.name.lower() for call in TorchCall)),
)
"""The costs that go with the pace of a host."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The latencies and limits of a device. Times are in ns. The defaults were measured on an H200 with CUDA 13."""

    queue_capacity: int = 1022
    """The length of a stream's launch queue: the next launch blocks the host once so many launches have not begun."""
    gap: int = 900
    """From the end of an op to the start of the next op on the same stream."""
    graph_gap: int = 160
    """The same as `gap`, between ops of a CUDA graph."""
    branch_delay: int = 2_000
    """How much later than the first branch of a CUDA graph its other branches begin. Of pairs of small kernels on an
    H200 (`benchmarks/virtual_pairs.py`), those that slow each other least take 1.6 to 2.2 µs longer together than the
    longer of both alone: a tenth of each of five sets, however many kernels the branches have.
    """
    launch_latency: int = 3_000
    """From the end of a launch call to the start of its op on an idle device."""
    copy_latency: int = 1_500
    graph_latency: int = 5_000
    event_latency: int = 1_500
    """From the completion of a CUDA event to the start of the next op on a stream that waits for the event."""
    timed_event: int = 1_280
    """How long a stream takes to write down when a CUDA event happens: two such events one after the other are so far
    apart. Events without timing cost it nothing.
    """
    wake_latency: int = 4_000
    """From the end of the device's work for which the host waits to the end of the host's wait."""
    staged_at_once_bytes: int = 64 << 10
    """A copy of at most this many bytes from pageable memory to the device does not block the host.
    Its bytes travel in the launch queue.
    """
    sleep_cycles_per_us: float = 1_979.0
    """The clock rate of torch.cuda._sleep, in cycles per µs: 1e8 cycles took 50.53 ms."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What programs and timelines see of a device.

    Attributes:
        name: The name of the GPU.
        total_bytes: The size of its memory.
        context_bytes: How much of its memory the CUDA context takes. No allocation has this memory.
        multiprocessors: The number of its multiprocessors.
    """

    name: str
    total_bytes: int
    context_bytes: int
    multiprocessors: int


class ColdCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much longer an operator's call takes if kernels were loaded since the operator's last call.

    Loading evicts the code of operators, of torch and of the driver from the CPU caches. The longer the loading took,
    the more of the code is evicted. On an H100's host, an operator that had been called 100 times took as much longer
    after another operator had loaded its module as its own second call did.

    Attributes:
        brief_ns: The extra time grows by the logarithm of 1 + (time of loading / `brief_ns`).
        ns: The part of the extra time that is equal for all operators, for a logarithm of 1.
        share: The other part, divided by the time of a call that finds its code in the caches. The time includes the
            wait for the device.
        again: The extra time of the next call of the operator, divided by the extra time of this call.
        operators: `ns` plus the other part, for each operator for which this sum was measured.
    """

    brief_ns: int = 1_000_000
    ns: int = 0
    share: float = 0.0
    again: float = 0.0
    operators: dict[str, int] = {}

    def evicted(self, loading_ns: float) -> float:
        """Returns the factor by which the extra time is multiplied if kernels were loaded for `loading_ns` ns."""
        return math.log1p(loading_ns / self.brief_ns)

    def extra_ns(self, operator: str, warm_ns: float, loading_ns: float) -> float:
        """Returns the extra ns of an operator's call. `warm_ns` is the time of a call that finds its code in the
        caches, `loading_ns` how long kernels were loaded since the operator's last call."""
        own = self.operators.get(operator, self.ns + self.share * min(warm_ns, LONG_NS))
        return own * self.evicted(loading_ns)


LONG_NS = 40_000
"""If a call takes longer than this, its device does, or it repeats code that it has just run."""


class Startup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the first uses of CUDA, of a device and of operators cost the host, in ns. `startup.py`
    measures it.

    Attributes:
        init: The first use of CUDA in a process.
        context: The first use of a device.
        cold: How much longer calls take after kernels were loaded.
        early: By which part the first module takes longer to load than `modules` says. The second takes longer by half
            of this part, the third by a third, and so on.
        kernel: The first launch of each kernel, without the time to load its module.
        shapes: The first call of an operator with new shapes, if its library prepares an execution plan for each.
        compiled: For operators whose library compiles kernels at run time: the compilation of a kernel. CUDA keeps
            compiled kernels in a cache on disk, so it is charged only if the program disables this cache.
        libraries: (ns, operators) for each library that is set up. The first call among the operators takes the extra
            ns. Later calls do not.
        modules: The time to load each module. A module is loaded when one of its kernels is first launched.
        shared: (ns, modules) for each part of the driver or of a library that kernels of several modules need. The
            first launch of such a kernel takes the extra ns. `modules` are numbers of `modules` above.
    """

    init: int = 0
    context: int = 0
    cold: ColdCode = ColdCode()
    early: float = 0.0
    kernel: int = 0
    shapes: dict[str, int] = {}
    compiled: dict[str, int] = {}
    libraries: list[tuple[int, list[str]]] = []
    modules: list[int] = []
    shared: list[tuple[int, list[int]]] = []


class Costs(Protocol):
    """The costs of a GPU and its host."""

    @property
    def device(self) -> DeviceFacts: ...

    @property
    def host(self) -> HostCosts: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def startup(self) -> Startup: ...

    @property
    def known_error(self) -> str:
        """How wrong predictions were for programs whose real times are known, as a text that reports show."""

    def cost(self, signature: Signature) -> OperatorCost:
        """Returns the cost of a call of an operator. It is called once for each different
        signature. It may raise any error if the cost cannot be computed.
        """

    def guess(self, signature: Signature) -> OperatorCost:
        """Returns a rough cost of a call for which `cost` raised an error. Raises nothing itself."""

    def host_work_ns(self, signature: Signature, threads: int) -> int:
        """Returns for how long an operator on CPU tensors computes, in ns. It is called once for
        each different signature and number of threads.

        Args:
            signature: The call.
            threads: The number of threads that the program set; 0 if it set none.
        """

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        """Returns how long a copy takes, in ns.

        Args:
            size_bytes: The size of the copy.
            direction: Its direction.
            pinned: Whether its host memory is pinned.
        """

    def transfer(self, operation: Operation, size_bytes: int, ranks: int) -> Transfer:
        """Returns how NCCL runs an operation, and how long it takes once all ranks are ready. The
        arguments are those of `collectives.chosen_way`.
        """
