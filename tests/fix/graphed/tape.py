"""A device in plain Python for tests: what is captured is a tape of operators, replayed on the CPU.

Replays run in any order that the streams and events of the capture allow, drawn anew each time: what is missing from
them shows as another result. Time is counted: an operator that Python calls costs `CALL`, a replayed one its cost on
the longest way through the tape.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from unstall.fix.tensors.storages import storage_of, tensors_of, touched_by

CALL = 10.0
COPY = 0.1  # of arguments and results, so that functions of few operators gain too
_COPIES = {"aten::copy_", "aten::clone", "aten::detach"}
_HOP = 0.1


@dataclass
class Entry:
    func: Any
    args: Any
    kwargs: Any
    result: Any
    lane: int
    after: set[int]
    launches: bool


@dataclass
class Tape:
    device: TapeDevice
    entries: list[Entry] = field(default_factory=list)

    def replay(self) -> None:
        with _disable_current_modes(), torch.no_grad():
            for place in self._order():
                self._run(self.entries[place])
        self.device.clock += self._longest()

    def _run(self, entry: Entry) -> None:
        if not entry.launches:
            return
        result = entry.func(*entry.args, **entry.kwargs)
        for mine, theirs in zip(tensors_of(entry.result), tensors_of(result), strict=True):
            if storage_of(mine) != storage_of(theirs):
                mine.detach().copy_(theirs.detach())

    def reset(self) -> None:
        self.entries.clear()

    def _order(self) -> list[int]:
        waiting = [len(entry.after) for entry in self.entries]
        followers: list[list[int]] = [[] for _ in self.entries]
        for place, entry in enumerate(self.entries):
            for before in entry.after:
                followers[before].append(place)
        free = [place for place, count in enumerate(waiting) if not count]
        order: list[int] = []
        while free:
            order.append(free.pop(self.device.dice.randrange(len(free))))
            for place in followers[order[-1]]:
                waiting[place] -= 1
                if not waiting[place]:
                    free.append(place)
        return order

    def _longest(self) -> float:
        ends: list[float] = []
        for entry in self.entries:
            begun = max((ends[at] + _HOP * (self.entries[at].lane != entry.lane) for at in entry.after), default=0.0)
            ends.append(begun + (1.0 if entry.launches else 0.0))
        return max(ends, default=0.0)


class _Recording(TorchDispatchMode):
    def __init__(self, device: TapeDevice, tape: Tape) -> None:
        TorchDispatchMode.__init__(self)
        self.device, self.tape = device, tape
        self.draws: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        drawn = torch.random.get_rng_state()
        result = func(*args, **kwargs)
        device = self.device
        place = len(self.tape.entries)
        after = set(device.heads[device.lane])
        if kwargs.get("generator") is not None or not torch.equal(drawn, torch.random.get_rng_state()):
            # A GPU's random operators carry the place of their numbers; the CPU's draw in the order that they run.
            after |= self.draws
            self.draws = {place}
        launches = touched_by(func, args, kwargs, result).launches
        self.tape.entries.append(Entry(func, args, kwargs, result, device.lane, after, launches))
        device.heads[device.lane] = {place}
        return result


class _Counting(TorchDispatchMode):
    def __init__(self, device: TapeDevice) -> None:
        TorchDispatchMode.__init__(self)
        self.device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.device.clock += COPY if func._schema.name in _COPIES else CALL
        return func(*args, **(kwargs or {}))


class TapeLanes:
    def __init__(self, device: TapeDevice, count: int) -> None:
        self.device, self.count = device, count
        for lane in range(1, count):
            device.heads[lane] = set(device.heads[0])

    @contextmanager
    def on(self, lane: int) -> Iterator[None]:
        kept, self.device.lane = self.device.lane, lane
        try:
            yield
        finally:
            self.device.lane = kept

    def record_event(self, lane: int) -> set[int]:
        return set(self.device.heads[lane])

    def wait_event(self, lane: int, event: set[int]) -> None:
        if not self.device.forgets_waits:
            self.device.heads[lane] |= event

    def join(self) -> None:
        for lane in range(1, self.count):
            self.device.heads[0] |= self.device.heads[lane]


class TapeDevice:
    """`forgets_waits` makes it wrong: what should wait for another lane does not."""

    type = "cpu"
    index = None
    measures_operators = False

    def __init__(self, seed: int = 0, *, forgets_waits: bool = False) -> None:
        self.dice = random.Random(seed)
        self.forgets_waits = forgets_waits
        self.clock = 0.0
        self.lane = 0
        self.heads: dict[int, set[int]] = {0: set()}
        self.captures = self.pools = 0

    def on_capture_stream(self) -> Any:
        return nullcontext()

    def capture_stream(self) -> Any:
        return nullcontext()

    def capture(self, pool: Any, generators: Any, run: Callable[[], Any]) -> Any:
        tape = Tape(self)
        self.heads, self.lane = {0: set()}, 0
        self.captures += 1
        with _Recording(self, tape):
            result = run()
        return tape, result, len(tape.entries)

    def lanes(self, count: int) -> TapeLanes:
        return TapeLanes(self, count)

    def nodes_captured(self) -> None:
        return None

    def is_on_its_stream(self) -> bool:
        return True

    def timing_event(self) -> Any:
        raise AssertionError("it cannot tell the time within a capture")

    def seconds_between(self, start: Any, end: Any) -> float:
        raise AssertionError("it cannot tell the time within a capture")

    def new_pool(self) -> tuple[int, int]:
        self.pools += 1
        return self.pools, 0

    shared_pool = new_pool

    def pool_bytes(self, pool: tuple[int, int]) -> int:
        return 0

    def free_bytes(self) -> int:
        return 1 << 40

    def order(self) -> None:
        return

    def generator(self) -> torch.Generator:
        return torch.default_generator

    def synchronize(self) -> None:
        return

    def seconds(self, run: Callable[[], Any]) -> float:
        begun = self.clock
        with _Counting(self):
            run()
        return self.clock - begun

    def capturing(self) -> bool:
        return False

    def hand_over(self, tensors: Any) -> None:
        return
