"""Fetching from a loader and sending to the device: what a prefetch does for each batch, on whichever thread."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from unstall.fix.tensors.accelerator import Accelerator
from unstall.fix.tensors.nesting import tensors_in
from unstall.fix.tensors.staging import Sender, Sent
from unstall.guest.rng import drawn_from, random_states
from unstall.guest.steps import HandedOn

_WATCHED = 16  # first batches of which it is seen whether fetching draws random numbers, and each so many later
_ROOM = 16  # batches that the device has not come to yet may take this part of its memory


class NoRoomAheadError(Exception):
    """The device has no memory for batches before the program is done with those that it has."""


@dataclass(slots=True)
class FetchedBatch:
    """One batch on its way. Times in ns."""

    value: Any  # as the loader gave it, where it is not sent yet
    sent: Sent | None  # None: there was no memory for it on the device, or it was handed on
    fetch_ns: int
    stage_ns: int
    drawn: frozenset[str]  # global random generators that were drawn from meanwhile
    on_device: bool  # the loader itself made tensors there
    state: Any  # the loader's `state_dict()` after it
    random: dict[str, Any]  # states of the generators after it, where they are watched


class Room:
    """How far batches may run ahead of the device: those handed out whose work it has not done yet."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._limit = accelerator.total_bytes() // _ROOM
        self._lock = threading.Lock()
        self._out: deque[tuple[Any, int]] = deque()

    def handed_out(self, done: Any, size_bytes: int) -> None:
        with self._lock:
            self._out.append((done, size_bytes))

    def wait_for(self, size_bytes: int) -> None:
        """Until there is room for so many bytes more."""
        while True:
            with self._lock:
                while self._out and self._out[0][0].query():
                    self._out.popleft()
                if not self._out or sum(size for _, size in self._out) + size_bytes <= self._limit:
                    return
                oldest = self._out[0][0]
            oldest.synchronize()

    def shrink(self) -> None:
        """Waits for all, and from now on for each."""
        self._limit = 0
        self.wait_for(1)


def pins_by_itself(loader: Any) -> bool:
    """Whether batches come from workers and are pinned by a thread of the loader's: ahead of who asks for them, and
    each in memory that nobody else writes to while it is read."""
    return isinstance(loader, DataLoader) and loader.num_workers > 0 and loader.pin_memory


class Batches:
    """A loader's batches, sent to the device one by one. Used by one thread at a time."""

    def __init__(self, loader: Any, accelerator: Accelerator, sender: Sender, room: Room) -> None:
        self._loader = loader
        self.iterator = HandedOn(iter(loader))
        self._accelerator, self._sender, self._room = accelerator, sender, room
        self._stream = accelerator.stream("in")
        self.watch_draws = type(loader) not in (list, tuple)  # which only hand out what they have
        self.pinned_by_loader = pins_by_itself(loader)
        self.ahead = False  # whether it is all done on a thread of its own
        self._full = False  # whether memory ran out there
        self._fetched = 0
        self.has_state = hasattr(loader, "state_dict")

    def state(self) -> Any:
        """The loader's, after the batch that was fetched last."""
        return copy.deepcopy(self._loader.state_dict())

    def next(self, before: dict[str, Any] | None = None) -> FetchedBatch:
        """`before`: states of the random generators as they are. Raises NoRoomAheadError after one that stayed."""
        if self.ahead and self._full:
            raise NoRoomAheadError
        self._fetched += 1
        watch = self.watch_draws and (self._fetched <= _WATCHED or self._fetched % _WATCHED == 0)
        if watch and not before:
            before = random_states()
        self._sender.wait_until_read()
        start = time.perf_counter_ns()
        value = next(self.iterator)
        state = self.state() if self.has_state else None
        fetch_ns = time.perf_counter_ns() - start
        self._sender.wait_for_slot()
        start = time.perf_counter_ns()
        sent: Sent | None = None
        try:
            sent = self.send(value)
        except torch.OutOfMemoryError:
            if not self.ahead:
                raise
            self._full = True
        stage_ns = time.perf_counter_ns() - start
        on_device = sent is not None and any(tensor.device.type != "cpu" for tensor in tensors_in(value))
        after = random_states() if watch else {}
        drawn = drawn_from(before or {}, after) if watch else set()
        held = value if sent is None else None
        return FetchedBatch(held, sent, fetch_ns, stage_ns, frozenset(drawn), on_device, state, after)

    def send(self, value: Any) -> Sent:
        try:
            return self._sender.send(value, self._stream, self._room.wait_for, patient=self.ahead)
        except torch.OutOfMemoryError:
            self._room.shrink()
            self._accelerator.release_cache()
            return self._sender.send(value, self._stream, self._room.wait_for, patient=self.ahead)
