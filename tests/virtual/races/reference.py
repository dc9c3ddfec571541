"""The obvious way to find races: a graph of what happens before what, closed, and every pair of accesses by byte."""

from __future__ import annotations

from virtual.races.logs import Log

from unstall.timeline.columns import RaceKind
from unstall.virtual.log import DIRECTION_BITS, CopyFlag, LogCode
from unstall.virtual.races import Placement

_WORK = (LogCode.LAUNCH, LogCode.COPY)
_KINDS = {
    (True, False): RaceKind.READ_EARLY,
    (True, True): RaceKind.WRITTEN_TWICE,
    (False, True): RaceKind.OVERWRITTEN_EARLY,
}
Lane = tuple[object, ...]


class _Graph:
    """Nodes and edges from earlier nodes to later ones: `before[n]` has a bit for each node that n comes after."""

    def __init__(self) -> None:
        self.before: list[int] = []

    def node(self, *after: int | None) -> int:
        bits = 0
        for other in after:
            if other is not None:
                bits |= self.before[other] | (1 << other)
        self.before.append(bits)
        return len(self.before) - 1

    def ordered(self, first: int, second: int) -> bool:
        return bool(self.before[second] >> first & 1)


class ReferenceRaces:
    """Runs a log; `races` are (kind, earlier record, later record) of each lane's last accesses of each byte."""

    def __init__(self, log: Log, placement: Placement | None = None) -> None:
        self.log = log
        self.graph = _Graph()
        self.host: int = self.graph.node()
        self.last: dict[Lane, int] = {}  # node of a lane's last work
        self.events: dict[tuple[object, int], int] = {}
        self.launched: dict[int, int] = {}
        self.accesses: list[tuple[int, int, Lane, int, int, int, bool]] = []
        self.run()

    def races(self) -> set[tuple[RaceKind, int, int]]:
        """Of one pair of records the worst kind."""
        found: dict[tuple[int, int], RaceKind] = {}
        for byte_accesses in self._by_byte().values():
            for i, (node, record, lane, write) in enumerate(byte_accesses):
                last: dict[tuple[Lane, bool], tuple[int, int]] = {}
                for earlier_node, earlier, earlier_lane, wrote in byte_accesses[:i]:
                    if earlier_node != node:
                        last[earlier_lane, wrote] = earlier_node, earlier
                for (earlier_lane, wrote), (earlier_node, earlier) in last.items():
                    if earlier_lane == lane or not (wrote or write) or earlier_lane == ("host",):
                        continue
                    if not self.graph.ordered(earlier_node, node):
                        kind = _KINDS[wrote, write]
                        found[earlier, record] = min(kind, found.get((earlier, record), kind))
        return {(kind, *pair) for pair, kind in found.items()}

    def _by_byte(self) -> dict[tuple[int, int], list[tuple[int, int, Lane, bool]]]:
        table: dict[tuple[int, int], list[tuple[int, int, Lane, bool]]] = {}
        for node, record, lane, allocation, offset, size, write in self.accesses:
            for byte in range(offset, offset + size):
                table.setdefault((allocation, byte), []).append((node, record, lane, write))
        return table

    def run(self) -> None:
        first_use = 0
        capture: tuple[int, list[tuple[int, int]], set[Lane], set[int]] | None = None
        captured: dict[int, tuple[list[tuple[int, int]], Lane]] = {}
        for record, (a, _, stream, _, _, _, uses, code, device, _) in enumerate(self.log.rows):
            lane: Lane = (device, stream)
            if code == LogCode.CAPTURE_BEGIN:
                capture = a, [], {lane}, set()
                captured[a] = capture[1], lane
            elif code == LogCode.CAPTURE_END:
                capture = None
            elif code == LogCode.GRAPH_LAUNCH:
                self._launch(a, captured, lane)
            else:
                joins = capture is not None and code == LogCode.EVENT_WAIT and a in capture[3]
                on_a_stream = code in (*_WORK, LogCode.EVENT_RECORD, LogCode.EVENT_WAIT)
                if capture is not None and on_a_stream and (lane in capture[2] or joins):
                    capture[2].add(lane)
                    if code == LogCode.EVENT_RECORD:
                        capture[3].add(a)
                    capture[1].append((record, first_use))
                else:
                    self._step(record, first_use, lane, None)
            first_use += uses

    def _launch(self, number: int, captured: dict[int, tuple[list[tuple[int, int]], Lane]], lane: Lane) -> None:
        if number not in captured:
            return
        nodes, origin = captured[number]
        start = self.graph.node(self.host, self.last.get(lane), self.launched.get(number))
        self.last[lane] = start
        own = set()
        for record, first_use in nodes:
            _, _, stream, *_, device, _ = self.log.rows[record]
            at: Lane = lane
            if (device, stream) != origin:
                at = ("graph", number, device, stream)
                if at not in own:
                    own.add(at)
                    self.last[at] = self.graph.node(start, self.last.get(at))
            self._step(record, first_use, at, number)
        end = self.graph.node(self.last[lane], *(self.last[part] for part in own))
        self.last[lane] = self.launched[number] = end

    def _step(self, record: int, first_use: int, lane: Lane, graph: int | None) -> None:
        a, _, _, _, _, _, uses, code, device, flags = self.log.rows[record]
        if code in (*_WORK, LogCode.EVENT_RECORD, LogCode.EVENT_WAIT):
            awaited = self.events.get((graph, a)) if code == LogCode.EVENT_WAIT else None
            node = self.last[lane] = self.graph.node(self.host, self.last.get(lane), awaited)
            if code == LogCode.EVENT_RECORD:
                self.events[graph, a] = node
            self._use(node, record, first_use, uses, lane)
            if code == LogCode.COPY and _blocks(flags):
                self.host = self.graph.node(self.host, node)
        elif code == LogCode.OP_BEGIN:
            self.host = self.graph.node(self.host)
            self._use(self.host, record, first_use, uses, ("host",))
        elif code == LogCode.SYNC_STREAM:
            self.host = self.graph.node(self.host, self.last.get(lane))
        elif code == LogCode.SYNC_EVENT:
            self.host = self.graph.node(self.host, self.events.get((graph, a)))
        elif code == LogCode.SYNC_DEVICE:
            lanes = [
                node for of, node in self.last.items() if of[0] == device or (of[0] == "graph" and of[2] == device)
            ]
            self.host = self.graph.node(self.host, *lanes)

    def _use(self, node: int, record: int, first_use: int, uses: int, lane: Lane) -> None:
        for allocation, offset, size, write in self.log.uses[first_use : first_use + uses]:
            self.accesses.append((node, record, lane, allocation, offset, size, bool(write)))


def _blocks(flags: int) -> bool:
    direction = flags & DIRECTION_BITS
    if direction not in (CopyFlag.DEVICE_TO_HOST, CopyFlag.HOST_TO_DEVICE):
        return False
    if flags & CopyFlag.VALUE or not flags & CopyFlag.NON_BLOCKING:
        return True
    return direction == CopyFlag.DEVICE_TO_HOST and not flags & CopyFlag.PINNED
