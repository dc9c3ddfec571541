"""Vector clocks: for each lane, and for the host, which work of every other lane has ended. A lane
is a stream, or a branch of a CUDA graph.
"""

from __future__ import annotations

from unstall.virtual.races.lanes import StreamLanes

_NOTHING = -1


class LaneClocks:
    """A vector clock for each lane (stream, or branch of a CUDA graph), and one for the host. A
    position is a place in the order in which the records of the log run.

    `of[s][t]` is a position in the work of lane t: all work of t up to it ends before lane s begins
    its next work. `of[s][s]` is not used, because the work of one lane runs in order. `host` is the
    clock of the host. All host threads share it: a thread may rely on a wait of another thread, and
    the log does not show how the two synchronized.
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
        """Returns the vector clock of a lane (stream, or branch of a CUDA graph) for the next work
        that the host puts on it. All that the host has waited for is included.

        For each lane, the clock has the position up to which its work has ended.
        """
        clock = self.of[lane]
        if self._known[lane] != self._waited:
            self._known[lane] = self._waited
            _join(clock, self.host)
        return clock

    def record(self, event: tuple[int, int], lane: int, position: int) -> None:
        """Records an event on a lane (stream, or branch of a CUDA graph). A wait for the event
        waits for all work of the lane up to `position`, a place in the order in which the records
        of the log run.

        An event is `(graph, number)`. `graph` is the number of the CUDA graph in which it was
        captured, or -1.
        """
        self._events[event] = self._up_to(lane, position)

    def wait(self, event: tuple[int, int], lane: int) -> None:
        """Makes a lane (stream, or branch of a CUDA graph) wait for an event as it was last
        recorded. Does nothing if the event was never recorded.
        """
        if event in self._events:
            _join(self.of[lane], self._events[event])

    def host_waits_for_event(self, event: tuple[int, int]) -> None:
        """Makes the host wait for an event as it was last recorded. Does nothing if the event was never recorded."""
        if event in self._events:
            self._host_joins(self._events[event])

    def host_waits(self, lane: int, position: int) -> None:
        """Makes the host wait for all work of a lane (stream, or branch of a CUDA graph) up to
        `position`, a place in the order in which the records of the log run.
        """
        self._host_joins(self._up_to(lane, position))

    def host_waits_for_device(self, device: int, position: int) -> None:
        """Makes the host wait for all work of a device up to `position`, a place in the order in
        which the records of the log run.
        """
        for lane in range(self.lanes.host):
            if self.lanes.device[lane] == device:
                self.host_waits(lane, position)

    def hand_over(self, source: int, target: int, position: int) -> None:
        """Makes the lane `target` wait for all work of the lane `source` up to `position`.

        A lane is a stream, or a branch of a CUDA graph. A position is a place in the order in which
        the records of the log run.
        """
        _join(self.of[target], self._up_to(source, position))

    def begin_launch(self, graph: int, own: tuple[int, ...], lane: int, position: int) -> None:
        """Begins a launch of a CUDA graph on the stream `lane`. As in CUDA, the graph waits for its
        previous launch, and its branches wait for the stream. `own` has the numbers of the
        branches.

        `position` is a place in the order in which the records of the log run.
        """
        if graph in self._launched:
            _join(self.of[lane], self._launched[graph])
        for part in own:
            self.hand_over(lane, part, position)

    def end_launch(self, graph: int, own: tuple[int, ...], lane: int, position: int) -> None:
        """Ends a launch of a CUDA graph on the stream `lane`, which waits for all branches of the
        graph. `own` has the numbers of the branches.

        `position` is a place in the order in which the records of the log run.
        """
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
