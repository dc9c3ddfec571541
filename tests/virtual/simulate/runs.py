"""Logs by hand, simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from virtual.simulate.logs import Fixed, Log

from unstall.timeline.columns import HostKind, Timeline
from unstall.virtual.options import MachineOptions
from unstall.virtual.simulation.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def begin(total_bytes: int = 1_000 << 20, costs: Fixed | None = None, **options: Any) -> tuple[Log, Simulator]:
    """A program on the GPU of round figures."""
    log = Log()
    return log, Simulator(log, MachineOptions(**options), costs or Fixed(total_bytes))


def memory_stats(simulator: Simulator) -> Mapping[str, int]:
    """What torch.cuda.memory_stats() tells of the first device."""
    with simulator.allocator(0) as allocator:
        return allocator.memory_stats()


def calls(timeline: Timeline, *kinds: HostKind) -> list[tuple[str, int, int]]:
    """(name, start, end) of the host's events of those kinds; of all but operators and sleep, if none are given."""
    host = timeline.host
    return [
        (timeline.strings[host.name[row]], int(host.start[row]), int(host.end[row]))
        for row in range(len(host))
        if (host.kind[row] in kinds if kinds else host.kind[row] not in (HostKind.OP, HostKind.PYTHON))
    ]


def ops(timeline: Timeline) -> list[tuple[int, int, int]]:
    """(row of Streams, start, end) of the device's ops."""
    device = timeline.device
    rows: Sequence[tuple[int, int, int]] = list(
        zip(device.stream.tolist(), device.start.tolist(), device.end.tolist(), strict=True)
    )
    return list(rows)
