"""Assigns each operator of a capture to a stream: list scheduling of a trace, by measured times."""

from __future__ import annotations

from dataclasses import dataclass

HOP_SECONDS = 1.0e-6
"""What an edge between streams costs more than one within a stream: the pace of tiny kernels in one graph on an
H200 is 0.97 to 1.15 µs, and a kernel that follows on another stream starts about one such step later."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One operator that puts work on a stream. `after`: places in the trace of operators that it waits for."""

    after: tuple[int, ...]
    seconds: float
    barrier: bool = False  # all before it end first, and none after it starts earlier


@dataclass(frozen=True, slots=True)
class Plan:
    """`lanes[i]`: the lane of the trace's i-th operator. `seconds`: how long the plan takes; `serial_seconds`: how long
    one lane takes."""

    lanes: tuple[int, ...]
    count: int
    seconds: float
    serial_seconds: float


def plan(trace: list[Traced], count: int) -> Plan:
    """Puts each operator, in the program's order, on the lane where it can start first. After an operator, its lane is
    kept for the follower with the longest way to the end."""
    way = _ways(trace)
    heirs = _heirs(trace, way)
    free = [0.0] * count
    tail = [-1] * count
    done: list[float] = []
    lanes: list[int] = []
    for place, op in enumerate(trace):
        if op.barrier:
            start = max(free)
            free = [start + op.seconds] * count
            tail = [place] * count
            lanes.append(0)
            done.append(free[0])
            continue
        lane, start = _best_lane(trace, place, free, tail, done, lanes, heirs)
        lanes.append(lane)
        free[lane] = start + op.seconds
        tail[lane] = place
        done.append(free[lane])
    serial = sum(op.seconds for op in trace)
    return Plan(tuple(lanes), count, max(free, default=0.0), serial)


def _best_lane(
    trace: list[Traced],
    place: int,
    free: list[float],
    tail: list[int],
    done: list[float],
    lanes: list[int],
    heirs: list[int],
) -> tuple[int, float]:
    op = trace[place]
    best, best_cost, best_start = 0, float("inf"), 0.0
    for lane in range(len(free)):
        ready = max((done[at] + (HOP_SECONDS if lanes[at] != lane else 0.0) for at in op.after), default=0.0)
        start = max(free[lane], ready)
        last = tail[lane]
        taken = last >= 0 and heirs[last] > place  # its heir is still to come, and would have to move
        # On a tie, behind an operator that it waits for anyway: another one would add an edge.
        stranger = last >= 0 and last not in op.after
        cost = start + (op.seconds + HOP_SECONDS if taken else 0.0) + (0.01 * HOP_SECONDS if stranger else 0.0)
        if cost < best_cost:
            best, best_cost, best_start = lane, cost, start
    return best, best_start


def _ways(trace: list[Traced]) -> list[float]:
    """Seconds from each operator's start to the end of all that depends on it."""
    way = [op.seconds for op in trace]
    for place in range(len(trace) - 1, -1, -1):
        for before in trace[place].after:
            way[before] = max(way[before], trace[before].seconds + way[place])
    return way


def _heirs(trace: list[Traced], way: list[float]) -> list[int]:
    """Of those that wait for each operator, the one with the longest way to the end; -1 for none."""
    heirs = [-1] * len(trace)
    for place, op in enumerate(trace):
        for before in op.after:
            if heirs[before] < 0 or way[place] > way[heirs[before]]:
                heirs[before] = place
    return heirs
