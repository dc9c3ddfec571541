"""Assigns each operator of a capture to a stream, by list scheduling with measured times."""

from __future__ import annotations

from dataclasses import dataclass

HOP_SECONDS = 1.0e-6
"""Extra latency of a dependency between streams, in s. In one graph on an H200, tiny kernels start every 0.97 to
1.15 µs. A kernel that depends on another stream starts later by about one of these intervals."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One operator of a capture that puts work on a stream.

    Attributes:
        after: The indices of the earlier operators that this operator waits for.
        seconds: How long this operator takes, in s.
        barrier: Whether all earlier operators end before this operator starts, and all later operators start after this
            operator ends.
    """

    after: tuple[int, ...]
    seconds: float
    barrier: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Says on which stream (lane) each operator of a capture runs.

    Attributes:
        lanes: The lane of each operator, in the order in which the program runs the operators.
        count: The number of lanes.
        seconds: The predicted time with this plan, in s.
        serial_seconds: The predicted time on one lane, in s.
    """

    lanes: tuple[int, ...]
    count: int
    seconds: float
    serial_seconds: float


def plan(trace: list[Traced], count: int) -> Plan:
    """Assigns the operators of a capture to `count` streams (lanes).

    Goes through the operators in the order of `trace`. Puts each operator on the lane on which it can start earliest,
    and then reserves this lane for its successor. The successor is one of the operators that wait for this operator:
    the one with the longest path to the end of the capture.
    """
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
        taken = last >= 0 and heirs[last] > place  # the lane is reserved for a later successor
        # On a tie, prefer a lane that ends in one of this operator's dependencies: another lane would add an edge.
        stranger = last >= 0 and last not in op.after
        cost = start + (op.seconds + HOP_SECONDS if taken else 0.0) + (0.01 * HOP_SECONDS if stranger else 0.0)
        if cost < best_cost:
            best, best_cost, best_start = lane, cost, start
    return best, best_start


def _ways(trace: list[Traced]) -> list[float]:
    """Returns, for each operator, the time in s of the longest path from the start of the operator to the end of the
    trace."""
    way = [op.seconds for op in trace]
    for place in range(len(trace) - 1, -1, -1):
        for before in trace[place].after:
            way[before] = max(way[before], trace[before].seconds + way[place])
    return way


def _heirs(trace: list[Traced], way: list[float]) -> list[int]:
    """Finds one successor of each operator. The successor is one of the operators that wait for the operator: the one
    with the longest path to the end of the trace. Returns the index of each operator's successor, or -1 if the operator
    has no successor. `way` has the lengths of the paths, in s."""
    heirs = [-1] * len(trace)
    for place, op in enumerate(trace):
        for before in op.after:
            if heirs[before] < 0 or way[place] > way[heirs[before]]:
                heirs[before] = place
    return heirs
