"""Vector clocks. Each lane has a vector clock, and the host has a vector clock. A lane is a stream, or a branch of a
CUDA graph. A vector clock has one position for each lane: the work of the lane up to this position has ended.
"""

from __future__ import annotations

from unstall.virtual.races.lanes import StreamLanes

_NOTHING = -1


class LaneClocks:
    """A vector clock for each lane and a vector clock for the host. A lane is a stream, or a branch of a CUDA graph.

    `of[s][t]` is a position in the work of lane t. All work of lane t up to this position ends before lane s starts its
    next work. `of[s][s]` is unused, because the work of one lane runs in order. All host threads share one clock. The
    reason is that a thread may rely on a wait of a different thread, and the log does not show how the two threads
    synchronized.
    """

    def __init__(self, lanes: StreamLanes) -> None:
        self.lanes = lanes
        self.host = [_NOTHING] * lanes.host
        self.of = [[_NOTHING] * lanes.host for _ in range(lanes.host)]
        self._waited = 0  # the number of waits of the host
        self._known = [0] * lanes.host  # by lane: that number when the lane last joined the host's clock
        self._events: dict[tuple[int, int], list[int]] = {}
        self._launched: dict[int, list[int]] = {}

    def now(self, lane: int) -> list[int]:
        """Returns the vector clock of the lane (a stream, or a branch of a graph) for the work that the host submits
        next. The clock includes all work that the host has waited for.
        """
        clock = self.of[lane]
        if self._known[lane] != self._waited:
            self._known[lane] = self._waited
            _join(clock, self.host)
        return clock

    def record(self, event: tuple[int, int], lane: int, position: int) -> None:
        """Records an event on the lane (a stream, or a branch of a graph). A wait for the event is a wait for all work
        of the lane up to `position`.
        """
        self._events[event] = self._up_to(lane, position)

    def wait(self, event: tuple[int, int], lane: int) -> None:
        """Makes the lane (a stream, or a branch of a graph) wait for the last recording of the event. Does nothing if
        the event was never recorded.
        """
        if event in self._events:
            _join(self.of[lane], self._events[event])

    def host_waits_for_event(self, event: tuple[int, int]) -> None:
        if event in self._events:
            self._host_joins(self._events[event])

    def host_waits(self, lane: int, position: int) -> None:
        """Makes the host wait for all work of the lane (a stream, or a branch of a graph) up to `position`."""
        self._host_joins(self._up_to(lane, position))

    def host_waits_for_device(self, device: int, position: int) -> None:
        for lane in range(self.lanes.host):
            if self.lanes.device[lane] == device:
                self.host_waits(lane, position)

    def hand_over(self, source: int, target: int, position: int) -> None:
        """Makes lane `target` wait for all work of lane `source` up to `position`. A lane is a stream, or a branch of a
        graph.
        """
        _join(self.of[target], self._up_to(source, position))

    def begin_launch(self, graph: int, own: tuple[int, ...], lane: int, position: int) -> None:
        """Begins a graph launch on the stream `lane`. As in CUDA, the branches of the graph (`own`) wait for this
        stream and for the previous launch of the graph.
        """
        if graph in self._launched:
            _join(self.of[lane], self._launched[graph])
        for part in own:
            self.hand_over(lane, part, position)

    def end_launch(self, graph: int, own: tuple[int, ...], lane: int, position: int) -> None:
        """Ends a graph launch on the stream `lane`. This stream waits for all branches of the graph (`own`)."""
        for part in own:
            self.hand_over(part, lane, position)
        self._launched[graph] = self._up_to(lane, position)

    def _up_to(self, lane: int, position: int) -> list[int]:
        clock = self.now(lane).copy()
        clock[lane] = position
        return clock

    def _host_joins(self, clock: list[int]) -> None:
        _join(self.host, clock)
        self._waited += 1


def _join(clock: list[int], other: list[int]) -> None:
    for lane, position in enumerate(other):
        if position > clock[lane]:
            clock[lane] = position
