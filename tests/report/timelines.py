"""Timelines to draw: made event by event, or as many events at once as asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from unstall.report.picture import IdleIntervals, Picture
from unstall.report.picture_layout import picture_of
from unstall.timeline.columns import (
    CopyDirection,
    Device,
    DeviceKind,
    Host,
    HostKind,
    HostMemory,
    Lines,
    Memory,
    Meta,
    Stacks,
    Streams,
    Threads,
    Timeline,
    Waits,
)

NO_IDLE = IdleIntervals(*(np.zeros(0, np.int64) for _ in range(4)))
NO_QUEUE = (np.zeros(0, np.int64), np.zeros(0, np.int32))


@dataclass
class Recording:
    """Gathers events by hand. Host events must be added in the order of Host: thread, start, -end."""

    strings: list[str] = field(default_factory=list)
    host: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)
    device: list[tuple[int, int, int, int, int, int, int, int, int]] = field(default_factory=list)
    streams: list[tuple[int, int]] = field(default_factory=list)
    lines: list[tuple[int, int, int, bool]] = field(default_factory=list)
    stacks: list[tuple[int, int]] = field(default_factory=list)

    def text(self, text: str) -> int:
        if text not in self.strings:
            self.strings.append(text)
        return self.strings.index(text)

    def frame(self, file: str, line: int, function: str, parent: int = -1) -> int:
        """A row of Stacks."""
        self.lines.append((self.text(file), line, self.text(function), True))
        self.stacks.append((parent, len(self.lines) - 1))
        return len(self.stacks) - 1

    def call(
        self,
        name: str,
        start: int,
        end: int,
        *,
        kind: HostKind = HostKind.OP,
        parent: int = -1,
        stack: int = -1,
        thread: int = 0,
    ) -> int:
        """A row of Host."""
        self.host.append((kind, thread, start, end, self.text(name), parent, stack))
        return len(self.host) - 1

    def op(
        self,
        name: str,
        start: int,
        end: int,
        *,
        kind: DeviceKind = DeviceKind.KERNEL,
        launch: int = -1,
        stream: tuple[int, int] = (0, 7),
        size: int = -1,
        direction: CopyDirection = CopyDirection.NONE,
        memory: HostMemory = HostMemory.UNKNOWN,
    ) -> int:
        """A row of Device; `stream` is (device, id)."""
        if stream not in self.streams:
            self.streams.append(stream)
        row = self.streams.index(stream)
        self.device.append((kind, stream[0], row, start, end, self.text(name), launch, size, direction * 8 + memory))
        return len(self.device) - 1

    def timeline(self, waits: Waits | None = None) -> Timeline:
        threads = sorted({row[1] for row in self.host}) or [0]
        thread_texts = [self.text(str(400 + thread)) for thread in threads]
        python = self.text("python")
        host = np.array(self.host, np.int64).reshape(-1, 7).T
        device = np.array(sorted(self.device, key=lambda op: op[3]), np.int64).reshape(-1, 9).T
        none = np.full(host.shape[1], -1, np.int32)
        lines = np.array(self.lines, np.int32).reshape(-1, 4).T
        stacks = np.array(self.stacks, np.int32).reshape(-1, 2).T
        return Timeline(
            strings=tuple(self.strings),
            host=Host(
                kind=host[0].astype(np.int8),
                thread=host[1].astype(np.int32),
                start=host[2],
                end=host[3],
                name=host[4].astype(np.int32),
                correlation=none.astype(np.int64),
                parent=host[5].astype(np.int32),
                op=none,
                forward=none,
                stack=host[6].astype(np.int32),
                shapes=none,
            ),
            device=Device(
                kind=device[0].astype(np.int8),
                device=device[1].astype(np.int32),
                stream=device[2].astype(np.int32),
                start=device[3],
                end=device[4],
                name=device[5].astype(np.int32),
                correlation=np.full(device.shape[1], -1, np.int64),
                launch=device[6].astype(np.int32),
                bytes=device[7],
                direction=(device[8] // 8).astype(np.int8),
                host_memory=(device[8] % 8).astype(np.int8),
                blocks=np.full(device.shape[1], -1, np.int32),
                share=np.full(device.shape[1], -1, np.int32),
            ),
            waits=waits or no_waits(),
            threads=Threads(
                process=np.zeros(len(threads), np.int32),
                thread=np.array(thread_texts, np.int32),
                name=np.full(len(threads), python, np.int32),
            ),
            streams=Streams(
                device=np.array([device for device, _ in self.streams], np.int32),
                stream=np.array([stream for _, stream in self.streams], np.int64),
            ),
            lines=Lines(lines[0], lines[1], lines[2], lines[3].astype(np.bool_), np.full(len(lines[0]), -1, np.int64)),
            stacks=Stacks(stacks[0], stacks[1]),
            memory=no_memory(),
            meta=Meta(path="made.json", reader="test"),
        )


def no_memory() -> Memory:
    none = np.zeros(0, np.int64)
    return Memory(none, none.astype(np.int32), none, none, none, none)


def no_waits() -> Waits:
    none = np.zeros(0, np.int32)
    return Waits(none, none.astype(np.int8), none, none, none, none.astype(np.bool_))


def drawn(
    timeline: Timeline,
    *,
    idle: Sequence[tuple[int, int, int, int]] = (),
    limit: int = 2_000_000,
    host_places: Sequence[str] | None = None,
    steps: Sequence[tuple[int, int]] = (),
) -> Picture:
    """Its picture, with `idle` as (start, end, cause, device), the source line of each host event, and the steps.

    Where there are steps, the window begins with the first.
    """
    columns = np.array(idle, np.int64).reshape(-1, 4).T
    places = list(dict.fromkeys(host_places or ()))
    ends = np.concatenate((timeline.host.end, timeline.device.end, [1]))
    return picture_of(
        timeline,
        window=(steps[0][0] if steps else 0, int(ends.max())),
        idle=IdleIntervals(*columns),
        queue=NO_QUEUE,
        steps=(np.array([start for start, _ in steps], np.int64), np.array([end for _, end in steps], np.int64)),
        host_place=np.array([places.index(place) for place in host_places], np.int32) if host_places else None,
        places=places,
        limit=limit,
    )


def training_step() -> Timeline:
    """One step: an operator that launches a kernel, a copy, a wait, and the Python frames around them (µs)."""
    made = Recording()
    main = made.frame("train.py", 90, "main")
    step = made.frame("train.py", 41, "step", main)
    root = made.call("train.py(90): main", 0, 1_000_000, kind=HostKind.PYTHON, stack=main)
    inner = made.call("train.py(41): step", 10_000, 900_000, kind=HostKind.PYTHON, parent=root, stack=step)
    linear = made.call("aten::linear", 20_000, 120_000, parent=inner, stack=step)
    addmm = made.call("aten::addmm", 30_000, 110_000, parent=linear, stack=step)
    launch = made.call("cudaLaunchKernel", 40_000, 60_000, kind=HostKind.LAUNCH, parent=addmm, stack=step)
    copy = made.call("cudaMemcpyAsync", 200_000, 300_000, kind=HostKind.COPY, parent=inner, stack=step)
    made.call("cudaStreamSynchronize", 400_000, 800_000, kind=HostKind.SYNC, parent=inner, stack=step)
    made.op("gemm_f32", 100_000, 500_000, launch=launch)
    made.op(
        "Memcpy HtoD (Pageable -> Device)",
        500_000,
        700_000,
        kind=DeviceKind.COPY,
        launch=copy,
        size=1_048_576,
        direction=CopyDirection.HOST_TO_DEVICE,
        memory=HostMemory.PAGEABLE,
    )
    return made.timeline()


def large(events: int) -> Timeline:
    """Kernels on two streams, each launched by a call within an operator: `events` in all, at uneven distances."""
    ops = events // 3
    rng = np.random.default_rng(7)
    begin = np.cumsum(rng.integers(2_000, 9_000, ops))
    made = Recording()
    names = [made.text(f"aten::op_{i}") for i in range(200)]
    launch_name = made.text("cudaLaunchKernel")
    for stream in (7, 20):
        made.op("warm_up", 0, 1, stream=(0, stream))
    made.call("main", 0, 1)
    shell = made.timeline()
    none = np.full(2 * ops, -1, np.int32)
    rows = np.arange(2 * ops)
    is_launch = rows % 2 == 1
    start = np.repeat(begin, 2) + np.where(is_launch, 300, 0)
    host = Host(
        kind=np.where(is_launch, HostKind.LAUNCH, HostKind.OP).astype(np.int8),
        thread=np.zeros(2 * ops, np.int32),
        start=start,
        end=start + np.where(is_launch, 900, 1_800),
        name=np.where(is_launch, launch_name, np.repeat(rng.choice(names, ops), 2)).astype(np.int32),
        correlation=none.astype(np.int64),
        parent=np.where(is_launch, rows - 1, -1).astype(np.int32),
        op=none,
        forward=none,
        stack=none,
        shapes=none,
    )
    busy = np.maximum(begin + 3_000, 0)
    small = np.zeros(ops, np.int8)
    device = Device(
        kind=small,
        device=np.zeros(ops, np.int32),
        stream=(np.arange(ops) % 2).astype(np.int32),
        start=busy,
        end=busy + rng.integers(500, 2_000, ops),
        name=rng.choice(names, ops).astype(np.int32),
        correlation=np.full(ops, -1, np.int64),
        launch=(2 * np.arange(ops) + 1).astype(np.int32),
        bytes=np.full(ops, -1, np.int64),
        direction=small,
        host_memory=small,
        blocks=np.full(ops, -1, np.int32),
        share=np.full(ops, -1, np.int32),
    )
    return Timeline(
        strings=shell.strings,
        host=host,
        device=device,
        waits=shell.waits,
        threads=shell.threads,
        streams=shell.streams,
        lines=shell.lines,
        stacks=shell.stacks,
        memory=shell.memory,
        meta=shell.meta,
    )
