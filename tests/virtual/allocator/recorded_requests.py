"""Sequences of requests that a real allocator served on an H200, and their replay."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from recordings import H200

from unstall.virtual import Block, CachingAllocator, OutOfMemoryError
from unstall.virtual.allocator.segments import TraceEntry

H200_BYTES = 150_109_880_320
GC_FRACTION = 0.02
"""The program ran its garbage collection with this fraction of the device."""


@dataclass(frozen=True)
class Request:
    """One call, and the statistics that torch gave after it, by key."""

    action: str
    name: int
    size: int
    stream: int
    after: dict[str, int]


@dataclass(frozen=True)
class Sequence:
    """The requests of one program run from an empty cache."""

    name: str
    settings: str
    fraction: float | None
    requests: tuple[Request, ...]


@cache
def sequences() -> tuple[Sequence, ...]:
    """All that are there."""
    return (*_plain(), *_configured())


def measured(name: str) -> dict[str, object]:
    """What a program on an H200 printed."""
    content = json.loads(gzip.decompress((H200 / f"{name}.json.gz").read_bytes()))
    assert isinstance(content, dict)
    return content


def _requests(rows: object, keys: object) -> tuple[Request, ...]:
    assert isinstance(rows, list)
    assert isinstance(keys, list)
    return tuple(
        Request(action, name, size, stream, dict(zip(keys, after, strict=True)))
        for action, name, size, stream, after in rows
    )


def _plain() -> Iterator[Sequence]:
    content = measured("allocator")
    for name, rows in content.items():
        if name not in ("keys", "seed"):
            yield Sequence(name, "", None, _requests(rows, content["keys"]))


def _configured() -> Iterator[Sequence]:
    for configuration, content in measured("allocator_configurations").items():
        assert isinstance(content, dict)
        for name, rows in content.items():
            if name.rpartition("_s")[2].isdecimal():
                fraction = GC_FRACTION if configuration == "gc" else None
                requests = _requests(rows, content["keys"])
                yield Sequence(f"{configuration}-{name}", content["conf"], fraction, requests)


@cache
def training_history() -> tuple[TraceEntry, ...]:
    """What torch's memory history held after four training steps of a convolutional network."""
    content = measured("allocator_configurations")["default"]
    assert isinstance(content, dict)
    return tuple(TraceEntry(*row) for row in content["train_history"])


def training_statistics() -> dict[str, int]:
    """The statistics at the end of that history."""
    content = measured("allocator_configurations")["default"]
    assert isinstance(content, dict)
    return dict(zip(content["keys"], content["train_stats"][-1], strict=True))


class RecordedAddresses:
    """Gives segments the addresses that the driver gave them."""

    def __init__(self, history: tuple[TraceEntry, ...]) -> None:
        self._next = iter([entry.address for entry in history if entry.action == "segment_alloc"])

    def reserve(self, size: int) -> int:
        return next(self._next)

    def release(self, address: int, size: int) -> None:
        raise AssertionError("nothing was given back")


def replay(sequence: Sequence) -> Iterator[tuple[Request, dict[str, int]]]:
    """Each request, and the statistics of our allocator after it."""
    allocator = CachingAllocator(H200_BYTES, sequence.settings)
    if sequence.fraction is not None:
        allocator.set_per_process_memory_fraction(sequence.fraction)
    live: dict[int, Block] = {}
    for request in sequence.requests:
        if _serve(allocator, live, request):
            yield request, allocator.memory_stats()
        else:
            yield request, {"served": 0}


def _serve(allocator: CachingAllocator, live: dict[int, Block], request: Request) -> bool:
    """Whether the outcome was the recorded one."""
    if request.action in ("alloc", "oom"):
        try:
            live[request.name] = allocator.malloc(request.size, request.stream)
        except OutOfMemoryError:
            return request.action == "oom"
        return request.action == "alloc"
    if request.action == "free":
        allocator.free(live.pop(request.name))
    elif request.action == "record_stream":
        allocator.record_stream(live[request.name], request.stream)
    elif request.action == "free_all":
        for block in live.values():
            allocator.free(block)
        live.clear()
    else:
        assert request.action == "empty_cache"
        allocator.empty_cache()
    return True
