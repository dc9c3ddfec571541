"""Fetches the batches of a data loader one by one, and sends each batch to the device. `prefetch` does this on the
program's own thread or on another thread."""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch.utils.data import DataLoader

from unstall.fix.tensors.accelerator import Accelerator
from unstall.fix.tensors.nesting import tensors_in
from unstall.fix.tensors.staging import Sender, Sent
from unstall.guest.instants import Span, instant
from unstall.guest.rng import drawn_from, random_states
from unstall.guest.steps import HandedOn

_WATCHED = 16  # RNG use is checked for the first 16 batches, then for every 16th
_SHARE = 0.5  # the share that batches may take of the memory that the program never needed
_ASKED = 16  # the memory is read again for every 16th batch


class NoRoomAheadError(Exception):
    """An error: the device has no memory for further batches until the program has finished with earlier batches."""


class StatefulLoader(Protocol):
    """A loader whose position can be saved and restored, such as a loader of `torchdata`."""

    def state_dict(self) -> Mapping[str, object]: ...

    def load_state_dict(self, state: Mapping[str, object]) -> None: ...


@dataclass(slots=True)
class FetchedBatch:
    """A batch that was fetched from the loader. If the device had memory for the batch, the batch was also sent to the
    device.

    Attributes:
        value: The batch as the loader made it. None if the batch was sent to the device.
        sent: The batch on the device. None if the device had no memory for it, or if the program has received it.
        fetching: The time that the loader took.
        staging: The time that sending took on the host.
        rng_used: The names of the global random number generators that the loader used for this batch.
        on_device: Whether the loader itself made tensors on the device.
        state: The loader's `state_dict()` after this batch. None if the loader has no such method.
        random: The states of the random number generators after this batch. Empty if their use was not observed.
    """

    value: object
    sent: Sent[object] | None
    fetching: Span
    staging: Span
    rng_used: frozenset[str]
    on_device: bool
    state: Mapping[str, object] | None
    random: dict[str, object]


class Room:
    """Limits the device memory that batches in use may take. The limit is half of the memory that stays free when the
    program's tensors take the most memory.

    A batch is in use from the moment when the program receives the batch until the device has finished with the batch.
    If the program needs more memory later, torch's allocator waits until the device has finished with batches that the
    program has dropped, and then reuses their memory. So these batches cause no out-of-memory error.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._limit = 0
        self._unread = _ASKED  # batches since the limit was read
        self._is_short = False
        self._lock = threading.Lock()
        self._out: deque[tuple[torch.Event, int]] = deque()

    def fitting(self, size_bytes: int) -> int:
        """Returns how many batches of `size_bytes` the limit allows at the same time."""
        return self._spare_bytes() // max(size_bytes, 1)

    def handed_out(self, done: torch.Event, size_bytes: int) -> None:
        with self._lock:
            self._out.append((done, size_bytes))

    def wait_for(self, size_bytes: int) -> None:
        """Waits until the limit allows another batch of `size_bytes`, because the device has finished with earlier
        batches."""
        self._unread += 1
        while True:
            with self._lock:
                while self._out and self._out[0][0].query():
                    self._out.popleft()
                if not self._out or self._allows(sum(size for _, size in self._out) + size_bytes):
                    return
                oldest = self._out[0][0]
            oldest.synchronize()

    def _allows(self, size_bytes: int) -> bool:
        if not self._is_short and (size_bytes > self._limit or self._unread >= _ASKED):
            self._limit, self._unread = self._spare_bytes(), 0
        return size_bytes <= self._limit

    def _spare_bytes(self) -> int:
        return int(_SHARE * self._accelerator.unneeded_bytes())

    def shrink(self) -> None:
        """Waits until the device has finished with all batches that the program received. From now on, each call of
        `wait_for` also waits until the device has finished with all received batches."""
        self._limit, self._is_short = 0, True
        self.wait_for(1)


def pins_by_itself(loader: object) -> bool:
    """Returns whether the loader fetches batches ahead in worker processes, and copies them to pinned memory in a
    thread of its own.

    If the result is True, only this thread of the loader writes to the pinned memory of batches.
    """
    return isinstance(loader, DataLoader) and loader.num_workers > 0 and loader.pin_memory


class Batches:
    """Fetches the batches of a data loader and sends each batch to the device. Only one thread may use this object at a
    time."""

    def __init__(self, loader: Iterable[object], accelerator: Accelerator, sender: Sender, room: Room) -> None:
        self._loader = loader
        self.iterator = HandedOn(iter(loader))
        self._accelerator, self._sender, self._room = accelerator, sender, room
        self._stream = accelerator.stream("in")
        self.watch_rng = type(loader) not in (list, tuple)  # these only return items that exist already
        self.pinned_by_loader = pins_by_itself(loader)
        self.ahead = False  # whether a separate thread fetches
        self._full = False  # whether device memory ran out in that thread
        self._fetched = 0
        self.has_state = hasattr(loader, "state_dict")

    def state(self) -> Mapping[str, object]:
        """Returns the loader's `state_dict()` after the batch that was fetched last."""
        return copy.deepcopy(cast(StatefulLoader, self._loader).state_dict())

    def next(self, before: dict[str, object] | None = None) -> FetchedBatch:
        """Fetches the next batch from the loader and sends it to the device.

        Args:
            before: The current states of the random number generators on the host, by name. None if the caller does not
                know them.

        Raises:
            StopIteration: The loader has no more batches.
            NoRoomAheadError: Batches are fetched ahead, and the previous batch did not fit into the device's memory.
        """
        if self.ahead and self._full:
            raise NoRoomAheadError
        self._fetched += 1
        watch = self.watch_rng and (self._fetched <= _WATCHED or self._fetched % _WATCHED == 0)
        if watch and not before:
            before = random_states()
        self._sender.wait_until_read()
        start = instant()
        value = next(self.iterator)
        state = self.state() if self.has_state else None
        fetching = Span(start, instant())
        self._sender.wait_for_slot()
        start = instant()
        sent: Sent[object] | None = None
        try:
            sent = self.send(value)
        except torch.OutOfMemoryError:
            if not self.ahead:
                raise
            self._full = True
        staging = Span(start, instant())
        on_device = sent is not None and any(tensor.device.type != "cpu" for tensor in tensors_in(value))
        after = random_states() if watch else {}
        drawn = drawn_from(before or {}, after) if watch else set()
        held = value if sent is None else None
        return FetchedBatch(held, sent, fetching, staging, frozenset(drawn), on_device, state, after)

    def send(self, value: object) -> Sent[object]:
        """Begins to copy a batch to the device. If device memory runs out, waits until the device has finished with
        earlier batches, and then tries a second time."""
        try:
            return self._sender.send(value, self._stream, self._room.wait_for, patient=self.ahead)
        except torch.OutOfMemoryError:
            self._room.shrink()
            self._accelerator.release_cache()
            return self._sender.send(value, self._stream, self._room.wait_for, patient=self.ahead)
