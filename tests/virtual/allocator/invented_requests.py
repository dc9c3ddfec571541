"""Requests that hypothesis invents, and events that are done when a test says so."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from unstall.virtual import Block, CachingAllocator, OutOfMemoryError

MIB = 1 << 20
SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:24",
    "roundup_power2_divisions:[1:2,8:4,>:8]",
    "garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
    "large_segment_size_mb:40",
    "expandable_segments:True,max_split_size_mb:24,garbage_collection_threshold:0.5,per_process_memory_fraction:0.8",
)


class EventsOnDemand:
    """Every event is pending until `finish`, or until somebody waits for it."""

    def __init__(self) -> None:
        self._recorded = 0
        self._done: set[int] = set()

    def record(self, stream: int) -> int:
        self._recorded += 1
        return self._recorded

    def query(self, event: int) -> bool:
        return event in self._done

    def synchronize(self, event: int) -> None:
        self._done.add(event)

    def finish(self) -> None:
        self._done.update(range(self._recorded + 1))


@dataclass(frozen=True)
class Call:
    action: str
    size: int
    stream: int
    which: int
    """Which live block, counted round."""


ACTIONS = ("malloc", "malloc", "malloc", "free", "free", "record_stream", "finish", "empty_cache")
EDGES = (511, 512, 513, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB, 24 * MIB)


def invented(seed: int, count: int) -> list[Call]:
    """Calls with sizes of 1 byte to 40 MiB, evenly over their logarithm, and those where the policy changes."""
    random = Random(seed)
    actions = random.choices(ACTIONS, weights=[random.random() for _ in ACTIONS], k=count)
    sizes = [random.choice(EDGES) if random.random() < 0.2 else int(2 ** random.uniform(0, 25.3)) for _ in actions]
    return [
        Call(action, size, random.randrange(3), random.randrange(99))
        for action, size in zip(actions, sizes, strict=True)
    ]


CALLS = st.builds(invented, st.integers(0, 1 << 32), st.integers(1, 90))


class Program:
    """A program that holds blocks of an allocator."""

    def __init__(self, settings: str, total_bytes: int = 96 * MIB) -> None:
        self.events = EventsOnDemand()
        self.allocator = CachingAllocator(total_bytes, settings, events=self.events)
        self.live: list[Block] = []

    def do(self, call: Call) -> None:
        if call.action == "malloc":
            try:
                self.live.append(self.allocator.malloc(call.size, call.stream))
            except OutOfMemoryError:
                return
        elif call.action == "free" and self.live:
            self.allocator.free(self.live.pop(call.which % len(self.live)))
        elif call.action == "record_stream" and self.live:
            self.allocator.record_stream(self.live[call.which % len(self.live)], call.stream)
        elif call.action == "finish":
            self.events.finish()
        elif call.action == "empty_cache":
            self.allocator.empty_cache()

    def run(self, calls: list[Call]) -> None:
        for call in calls:
            self.do(call)

    def let_go(self) -> None:
        """Frees all that is held."""
        while self.live:
            self.allocator.free(self.live.pop())
