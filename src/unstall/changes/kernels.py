"""Compares the kernels of two runs by name. Also compares the numbers of launches.

A kernel can be new, gone, or changed in number or time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.changes.groups import Grouped, common, largest_first
from unstall.changes.result import Count, KernelChange, Launches
from unstall.changes.sides import ComparedRun, Sides
from unstall.changes.spread import count, per_step, time
from unstall.result import Where
from unstall.timeline.columns import I64, DeviceKind, HostKind
from unstall.timeline.grouping import distinct


def kernels(sides: Sides) -> tuple[tuple[KernelChange, ...], int]:
    """Returns `(changes, unchanged)`: the kernels that differ between two runs, largest change
    first; the number of kernels that do not differ. All kernels with one name count as one.

    Memsets count as kernels.
    """
    own = [_kernels(side) for side in (sides.a, sides.b)]
    group_a, group_b, groups = common(own[0].name, own[1].name)
    grouped = [
        Grouped(group, each.step, groups, side.steps)
        for side, each, group in zip((sides.a, sides.b), own, (group_a, group_b), strict=True)
    ]
    counts = [of.sums(np.ones(len(each.row), dtype=np.int64)) for of, each in zip(grouped, own, strict=True)]
    taken = [of.sums(each.taken) for of, each in zip(grouped, own, strict=True)]
    where = [_main_places(side, each, of) for side, each, of in zip((sides.a, sides.b), own, grouped, strict=True)]
    names = np.zeros(groups, dtype=np.int64)
    for each, of in zip(own, grouped, strict=True):
        names[of.group] = each.name

    def change_of(i: int) -> KernelChange | None:
        times, often = time(taken[0], taken[1], i), count(counts[0], counts[1], i)
        slower = times.beyond_noise and not sides.negligible(times.change)
        if often.same and not slower:
            return None
        return KernelChange(
            status="new" if not counts[0].total[i] else "gone" if not counts[1].total[i] else "changed",
            name=sides.texts[names[i]] if names[i] >= 0 else "",
            where_a=where[0].get(i),
            where_b=where[1].get(i),
            count=often,
            device_ns=times,
        )

    return largest_first(map(change_of, range(groups)), lambda change: (-abs(change.device_ns.change), change.name))


def launches(sides: Sides) -> Launches:
    """Returns how many launches, graph launches and kernels each of two runs has per step."""
    counted = [_launches(side) for side in (sides.a, sides.b)]
    calls, graphs, all_kernels, in_graphs = (Count(a=a, b=b) for a, b in zip(*counted, strict=True))
    return Launches(calls=calls, graph_launches=graphs, kernels=all_kernels, kernels_in_graphs=in_graphs)


@dataclass(frozen=True, eq=False, slots=True)
class _Kernels:
    """The kernels of one run. Each column has one element per kernel that ran."""

    row: I64  # of device
    name: I64  # number of its text
    step: I64
    place: I64
    taken: I64  # ns


def _kernels(side: ComparedRun) -> _Kernels:
    device = side.run.timeline.device
    chosen = np.flatnonzero(device.kind[side.ops] != DeviceKind.COPY)
    rows = side.ops[chosen]
    name = device.name[rows]
    return _Kernels(
        row=rows,
        name=np.where(name >= 0, side.text[np.maximum(name, 0)], -1) if len(side.text) else name.astype(np.int64),
        step=side.op_step[chosen],
        place=side.op_place[chosen],
        taken=(device.end - device.start)[rows],
    )


def _main_places(side: ComparedRun, own: _Kernels, grouped: Grouped) -> dict[int, Where]:
    """Returns, for each group of kernels, the place whose launches take most of the group's time.

    If several places take equally much time, returns the place that launched first. The numbers of the places are not
    used for this choice, because these numbers depend on the order of the two runs.
    """
    width = 1 + int(own.place.max(initial=0))
    cells, which = distinct(grouped.group * width + own.place)
    taken = np.zeros(len(cells), dtype=np.int64)
    np.add.at(taken, which, own.taken)
    first = np.full(len(cells), -1, dtype=np.int64)
    first[which[::-1]] = own.row[::-1]
    most = np.lexsort((first, -taken, cells // width))
    groups, at = np.unique(cells[most] // width, return_index=True)
    launch = side.run.timeline.device.launch[first[most[at]]]
    where = {}
    for group, row in zip(groups.tolist(), launch.tolist(), strict=True):
        found = side.where(row, -1, ())
        if found is not None:
            where[group] = found
    return where


def _launches(side: ComparedRun) -> tuple[float, float, float, float]:
    host, device = side.run.timeline.host, side.run.timeline.device
    launch = device.launch[side.ops]
    calls = np.unique(launch[launch >= 0])
    is_kernel = device.kind[side.ops] == DeviceKind.KERNEL
    in_graph = np.isin(launch, calls[host.kind[calls] == HostKind.GRAPH_LAUNCH]) & is_kernel
    totals = len(calls), (host.kind[calls] == HostKind.GRAPH_LAUNCH).sum(), is_kernel.sum(), in_graph.sum()
    calls_, graphs, kernel_count, graph_count = (per_step(int(total), side.steps) for total in totals)
    return calls_, graphs, kernel_count, graph_count
