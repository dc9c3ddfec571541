"""Jobs to order: the traces of many ranks that wait for one another in their collectives.

    def train(rank: RankTrace) -> Iterator[Arrival]:
        for _ in range(5):
            with rank.step(), rank.frame("train.py", 10, "train"):
                rank.kernels(100, us=50)
                yield rank.collective("allreduce", range(8), us=300)

    paths = job(train, folder, ranks=8)

Each rank is a `TraceBuilder`. Its program is a generator that yields at each collective; the collective ends once all
members have come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from traces import Call, Event, TraceBuilder, ns

_NAMES = {
    "allreduce": "AllReduce_Sum_bf16_RING_LL",
    "_allgather_base": "AllGather_RING_LL",
    "_reduce_scatter_base": "ReduceScatter_Sum_bf16_RING_LL",
    "all_to_allv": "SendRecv",
    "send": "SendRecv",
    "recv": "SendRecv",
    "coalesced": "SendRecv",
    "broadcast": "Broadcast_RING_LL",
    "_reduce_oop": "Reduce_Sum_bf16_RING_LL",
}


@dataclass
class Arrival:
    """A rank has launched its part of an operation, which its device reaches at `begin`, in ns."""

    key: tuple[object, ...]
    members: tuple[int, ...]
    begin: int
    us: float
    done: Callable[[int], None]
    goes_on: bool = False  # it waits for nobody, and has ended


class RankTrace(TraceBuilder):
    """One rank: a `TraceBuilder` that knows its rank, jitters, and takes part in collectives."""

    def __init__(self, rank: int, world: int, *, seed: int = 0, host_jitter: float = 0, kernel_jitter: float = 0):
        super().__init__(stacks=True)
        self.rank, self.world = rank, world
        self._host_jitter, self._kernel_jitter = host_jitter, kernel_jitter
        self._random = Random(f"{seed} {rank}")
        self._sequence: dict[object, int] = {}
        self.kernel_factor = 1.0

    def work(self, us: float) -> None:
        factor = max(0.2, self._random.gauss(1, self._host_jitter)) if self._host_jitter else 1
        super().work(us * factor)

    def launch(self, kernel: str = "kernel", device_us: float = 10, **more: Any) -> Call:
        factor = max(0.2, self._random.gauss(1, self._kernel_jitter)) if self._kernel_jitter else 1
        return super().launch(kernel, device_us * factor * self.kernel_factor, **more)

    def kernels(self, count: int, us: float, *, name: str = "gemm", grid: int = 64, stream: int = 7) -> None:
        for number in range(count):
            with self.op("aten::mm"):
                self.launch(f"{name}_{number % 4}", us, stream=stream, grid=[grid, 1, 1])

    def occupy(self, us: float, stream: int = 7) -> None:
        """The stream is busy for that long with work that is not in the trace."""
        self._free[0, stream] = self.now + ns(us)

    def collective(
        self,
        name: str,
        members: Iterable[int],
        us: float,
        *,
        group: str = "default_pg",
        size: int = 1 << 20,
        stream: int = 20,
        peer: tuple[int, int] | None = None,
        received: int | None = None,
        told: bool = True,
        room: bool = False,
        goes_on: bool = False,
    ) -> Arrival:
        """Puts a collective on the communication stream, after the work of stream 7, which then waits for it. The trace
        has the `peer` of a send or receive if it is `told`. If its receiver has `room`, a send waits for nobody. Nor
        does a rank that `goes_on`, such as the root of a broadcast."""
        members = tuple(members)
        ready = self.record(stream=7)
        self.stream_wait(ready, stream=stream)
        counted = (group, members) if peer is None else (group, peer)
        self._sequence[counted] = number = self._sequence.get(counted, -1) + 1
        args: Event = {
            "Collective name": name,
            "In msg nelems": size,
            "Out msg nelems": size if received is None else received,
            "Group size": len(members),
            "dtype": "BFloat16",
            "Process Group Name": group,
            "Process Group Description": group,
            "Process Group Ranks": str(list(members)),
        }
        if peer is None:
            args["Seq"] = number
        elif told:
            # Of a send or receive, torch tells the other rank only.
            sides = {"recv": {"Src Rank": peer[0]}, "send": {"Dst Rank": peer[1]}}
            args |= sides.get(name, {"Src Rank": peer[0], "Dst Rank": peer[1]})
        with self.op("record_param_comms", more=args):
            start = self.now
            TraceBuilder.work(self, 5)
            begin = max(self.now + self._latency, self._free[0, stream])
            correlation = self._number("correlation")
            self._host("cuda_runtime", "cudaLaunchKernelExC", start, self._linked(correlation))
        kernel = f"ncclDevKernel_{_NAMES[name]}(ncclDevKernelArgsStorage<4096ul>)"

        def done(end: int) -> None:
            self._free[0, stream] = end
            self._device("kernel", kernel, begin, end, 0, stream, correlation, **args)

        both = members if peer is None else peer
        goes_on |= room and name == "send"
        if goes_on:
            done(begin + ns(us))
        return Arrival((*counted, number), tuple(both), begin, us, done, goes_on)

    def wait_for_comm(self, stream: int = 20) -> None:
        """The computing stream waits for the communication so far."""
        self.stream_wait(self.record(stream=stream), stream=7)


Program = Callable[[RankTrace], Iterator[Arrival]]


def job(
    program: Program,
    folder: Path,
    *,
    ranks: int = 8,
    seed: int = 0,
    host_jitter: float = 0,
    kernel_jitter: float = 0,
    clock: Callable[[int], tuple[float, float]] = lambda rank: (0, 0),
    end_jitter_us: float = 0,
) -> list[Path]:
    """Runs the ranks and writes their traces. `clock` gives the offset in µs and the drift of each rank's clock."""
    made = [
        RankTrace(rank, ranks, seed=seed, host_jitter=host_jitter, kernel_jitter=kernel_jitter) for rank in range(ranks)
    ]
    running = [program(each) for each in made]
    waiting: dict[tuple[object, ...], dict[int, Arrival]] = {}
    random = Random(seed)
    ready = list(range(ranks))
    while ready:
        rank = ready.pop()
        arrival = next(running[rank], None)
        if arrival is None:
            continue
        met = waiting.setdefault(arrival.key, {})
        met[rank] = arrival
        if arrival.goes_on:
            ready.append(rank)
        if len(met) == len(arrival.members):
            end = max(each.begin for each in met.values()) + ns(arrival.us)
            for other, each in met.items():
                if not each.goes_on:
                    each.done(end + ns(abs(random.gauss(0, end_jitter_us)) if end_jitter_us else 0))
                    ready.append(other)
            del waiting[arrival.key]
    assert not waiting, f"nobody comes to {list(waiting)[:3]}"
    return [write(each, folder / f"rank{each.rank}.json", clock(each.rank)) for each in made]


def write(trace: RankTrace, path: Path, clock: tuple[float, float] = (0, 0)) -> Path:
    offset, drift = clock
    if offset or drift:
        for event in trace.events:
            begin, end = (round((1 + drift) * at) for at in (event["ts"], event["ts"] + event["dur"]))
            event |= {"ts": begin + ns(offset) + 10**6, "dur": end - begin}
    document = trace.document()
    document["distributedInfo"] = {"backend": "nccl", "rank": trace.rank, "world_size": trace.world}
    path.write_bytes(msgspec.json.encode(document))
    return path


def train_ddp(
    rank: RankTrace,
    *,
    steps: int = 6,
    layers: int = 4,
    slow: int | None = None,
    cause: str = "",
    kernels: int = 10,
    late_steps: Collection[int] = range(1000),
    waits: int | None = None,
) -> Iterator[Arrival]:
    """A data-parallel training: load a batch, forward, backward with buckets, optimizer. One rank may be slow, for a
    cause, and one may wait for its device."""
    everybody = range(rank.world)
    for step in range(steps):
        mine = rank.rank == slow and step in late_steps
        rank.kernel_factor = 1.3 if mine and cause == "clocks" else 1.0
        longer = 1.4 if mine and cause == "sequence" else 1.0
        with rank.step(), rank.frame("train.py", 10, "train"):
            with rank.frame("train.py", 11, "load"):
                rank.next_batch(30_000 if mine and cause == "loader" else 100)
            for layer in range(layers):
                with rank.frame("model.py", 20 + layer, "forward"):
                    rank.kernels(kernels, 150 * longer, grid=round(64 * longer))
                if (mine and cause == "item") or rank.rank == waits:
                    with rank.frame("model.py", 40, "log"):
                        for _ in range(5):
                            rank.item()
                            rank.work(400)
            for layer in range(layers):
                with rank.frame("train.py", 30, "backward"):
                    rank.kernels(kernels, 250 * longer, grid=round(64 * longer))
                    if mine and cause == "kernel" and layer == 1:
                        with rank.frame("hooks.py", 7, "check"), rank.op("aten::sort"):
                            rank.launch("sort", 20_000, grid=[64, 1, 1])
                    if mine and cause == "sleep" and layer == 1:
                        with rank.frame("hooks.py", 9, "wait"), rank.named_frame("<built-in function sleep>"):
                            rank.work(40_000)
                    yield rank.collective("allreduce", everybody, us=300)
            rank.wait_for_comm()
            with rank.optimizer():
                rank.kernels(2, 100)
            with rank.frame("train.py", 33, "loss"):
                rank.item()


def train_pipeline(
    rank: RankTrace,
    *,
    stages: int = 4,
    steps: int = 4,
    batches: int = 8,
    slow_stage: int | None = None,
    own_lines: bool = False,
    peers_told: bool = True,
    cause: str = "layers",
) -> Iterator[Arrival]:
    """A pipeline (GPipe: all forward, then all backward) of several replicas. Ranks are stage * replicas + replica. If
    `own_lines`, each stage has lines of its own in the same functions. If not `peers_told`, the traces tell the peers
    of the first sends and receives of a step only. One stage may be slow: its `cause` is layers, clocks, sleep or
    item."""
    replicas = rank.world // stages
    stage, replica = divmod(rank.rank, replicas)
    before, after = rank.rank - replicas, rank.rank + replicas
    line = [each * replicas + replica for each in range(stages)]
    slow_by = cause if stage == slow_stage else ""
    layers = 20 if slow_by == "layers" else 10
    if slow_by == "clocks":
        rank.kernel_factor = 1.3
    forward, backward = (18 + stage, 28 + stage) if own_lines else (8, 12)
    send = partial(rank.collective, "send", line, us=20, group="pp")
    receive = partial(rank.collective, "recv", line, us=20, group="pp")
    for _ in range(steps):
        with rank.step(), rank.frame("pipe.py", 5, "train"):
            for batch in range(batches):
                if stage:
                    yield receive(peer=(before, rank.rank), told=peers_told or not batch)
                    rank.wait_for_comm()
                with rank.frame("pipe.py", forward, "forward"):
                    rank.kernels(layers, 100)
                    if slow_by == "sleep" and not batch:
                        with rank.frame("pipe.py", 40, "load"), rank.named_frame("<built-in function sleep>"):
                            rank.work(40_000)
                    if slow_by == "item":
                        with rank.frame("pipe.py", 41, "log"):
                            rank.item()
                            rank.work(800)
                if stage < stages - 1:
                    yield send(stream=21, peer=(rank.rank, after), told=peers_told or not batch)
            for _ in range(batches):
                if stage < stages - 1:
                    yield receive(stream=22, peer=(after, rank.rank), told=peers_told)
                    rank.wait_for_comm(22)
                with rank.frame("pipe.py", backward, "backward"):
                    rank.kernels(layers, 200)
                if stage:
                    yield send(stream=23, peer=(rank.rank, before), told=peers_told)
            if replicas > 1:
                same = range(stage * replicas, (stage + 1) * replicas)
                yield rank.collective("allreduce", same, us=200, group="dp", stream=24)
                rank.wait_for_comm(24)
            with rank.optimizer():
                rank.kernels(2, 100)
            rank.item()


def train_ahead(rank: RankTrace, *, steps: int = 4, batches: int = 6) -> Iterator[Arrival]:
    """Two stages. A send waits for nobody. The second stage sleeps in each step, so it finds most messages there."""
    for _ in range(steps):
        with rank.step(), rank.frame("pipe.py", 5, "train"):
            for batch in range(batches):
                if rank.rank and not batch:
                    with rank.frame("pipe.py", 7, "load"), rank.named_frame("<built-in function sleep>"):
                        rank.work(20_000)
                if not rank.rank:
                    rank.kernels(4, 100)
                yield rank.collective("send" if not rank.rank else "recv", range(2), us=20, peer=(0, 1), room=True)
                rank.wait_for_comm()
                if rank.rank:
                    rank.kernels(4, 100)
            yield rank.collective("recv" if not rank.rank else "send", range(2), us=20, peer=(1, 0), room=True)
            rank.wait_for_comm()


def train_rooted(
    rank: RankTrace, *, name: str = "broadcast", steps: int = 5, symmetric: bool = True
) -> Iterator[Arrival]:
    """Each step has a broadcast from rank 0 or a reduce to it, for which the last rank comes 10 ms late. A rank that
    needs nothing of the others goes on, to 8 ms of work."""
    goes_on = (rank.rank == 0) == (name == "broadcast")
    for _ in range(steps):
        with rank.step(), rank.frame("root.py", 3, "train"):
            rank.kernels(20, 100)
            if symmetric:
                yield rank.collective("allreduce", range(rank.world), us=200)
                rank.wait_for_comm()
            if rank.rank == rank.world - 1:
                rank.kernels(10, 1000)
            yield rank.collective(name, range(rank.world), us=100, group="root", stream=21, goes_on=goes_on)
            rank.wait_for_comm(21)
            if rank.rank == 0:
                rank.kernels(8, 1000)
            rank.item()


def train_fsdp(rank: RankTrace, *, steps: int = 4, layers: int = 5) -> Iterator[Arrival]:
    """A sharded training: parameters of the next layer are gathered while this one computes, gradients scattered."""
    everybody = range(rank.world)
    for _ in range(steps):
        with rank.step(), rank.frame("fsdp.py", 3, "train"):
            for way, us in (("forward", 100), ("backward", 200)):
                yield rank.collective("_allgather_base", everybody, us=400, group="fsdp")
                for layer in range(layers):
                    rank.wait_for_comm()
                    if layer + 1 < layers:
                        yield rank.collective("_allgather_base", everybody, us=400, group="fsdp")
                    with rank.frame("fsdp.py", 7, way):
                        rank.kernels(8, us)
                    if way == "backward":
                        yield rank.collective("_reduce_scatter_base", everybody, us=300, group="fsdp", stream=21)
            rank.wait_for_comm(21)
            with rank.optimizer():
                rank.kernels(1, 100)
            rank.item()


def train_tensor(rank: RankTrace, *, steps: int = 3, layers: int = 6) -> Iterator[Arrival]:
    """Tensor parallelism of neighbouring pairs, data parallelism of four, and one exchange of all, with plain names."""
    pair = range(rank.rank // 2 * 2, rank.rank // 2 * 2 + 2)
    for _ in range(steps):
        with rank.step(), rank.frame("tensor.py", 3, "train"):
            for _ in range(layers):
                with rank.frame("tensor.py", 5, "layer"):
                    rank.kernels(3, 100)
                    yield rank.collective("allreduce", pair, us=30, group="1")
                    rank.wait_for_comm()
            received = (2 if rank.rank == 6 else 1) << 20
            yield rank.collective("all_to_allv", range(rank.world), us=80, group="0", received=received)
            same = range(rank.rank % 2, rank.world, 2)
            yield rank.collective("allreduce", same, us=200, group="2", stream=21)
            rank.wait_for_comm()
            rank.wait_for_comm(21)
            with rank.optimizer():
                rank.kernels(1, 100)
            rank.item()
