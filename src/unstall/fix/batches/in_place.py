"""Fetches and copies batches for `prefetch` on the program's own thread, as a loop without `prefetch` does."""

from __future__ import annotations

import sys
from typing import Literal

import torch

from unstall.fix.batches.fetching import Batches
from unstall.fix.batches.measured_batch import HANDING_OVER_NS, at_hand
from unstall.fix.batches.prefetch_stats import PrefetchCounters
from unstall.fix.tensors.accelerator import Accelerator
from unstall.fix.tensors.nesting import map_tensors, tensors_in
from unstall.fix.tensors.parts import bytes_of
from unstall.fix.tensors.staging import SMALL_BYTES
from unstall.guest.instants import Instant, Span, instant

ENDED = object()
"""The value that is returned instead of a batch if the loader has no more batches."""

_RARELY = 64  # every 64th batch is measured, if earlier measurements found nothing to gain
_NEVER = sys.maxsize
_PAUSES = 8  # one measurement in 8 may find a small batch late: the host may have paused
_STEADY = 4  # measurements in a row that must agree about the device

News = Literal["starved", "fed", "not at hand"]


class InPlace:
    """Fetches batches on the program's own thread, and copies them to the device on the program's own stream. This is
    hardly more work than a loop without `prefetch` does, because only a few batches are measured.

    `prefetch` uses this if the host limits the speed of the program's loop, or if the loader's pinning thread does. The
    pinning thread needs the GIL, which another thread of `prefetch` would take from it.
    """

    def __init__(self, accelerator: Accelerator, counters: PrefetchCounters, of_workers: int | None) -> None:
        """Prepares the fetching of batches.

        Args:
            accelerator: The device.
            counters: The statistics to add to.
            of_workers: How many batches the loader's workers may have ready at the start. These batches do not show how
                fast the workers are. None if the loader does not fetch and pin batches by itself. In this case, batches
                are expected to be small and ready immediately.
        """
        self._accelerator, self._counters = accelerator, counters
        self._device = accelerator.device
        self._from_workers = of_workers is not None
        self.in_haste = of_workers is None  # whether this mode ends when batches get large or late
        self._unseen, self._apart = -(of_workers or 0), 1  # batches since the last measured one, and to the next
        self._prompt = 0  # +1 for each measured batch that came at once, up to 0; -_PAUSES for a late one
        self.news: News | None = None  # result of the last measurement; the caller clears it

    def batch(self, batches: Batches, entered: Instant) -> object:
        """Returns the next batch with its tensors on the device. Returns ENDED if the loader has no more batches.
        `entered` is the time when the program asked for the batch."""
        self._unseen += 1
        looks = self._unseen >= self._apart
        asked = self._asked_now() if looks and self._from_workers else None
        start = instant()
        value = next(batches.iterator, ENDED)
        if value is ENDED:
            return ENDED
        fetching = Span(start, instant())
        if looks or (self.in_haste and fetching.ns >= HANDING_OVER_NS):
            self._look(value, fetching, asked)
        moved = map_tensors(value, self._sent_from_pinned if self._from_workers else self._sent)
        counters = self._counters
        counters.batches += 1
        counters.fetching.add(fetching)
        counters.waiting.add(Span(entered, instant()))
        return moved

    def note_dry(self, asked: torch.Event) -> None:
        """Records whether the device had run out of work when the program asked for a batch.

        `asked` is an event that was recorded on the program's stream when the program asked for the batch. If the
        device has already reached this event, it had run out of work.
        """
        dry = self._counters.dry
        self._counters.dry = max(1, dry + 1) if asked.query() else min(-1, dry - 1)

    def is_starved(self) -> bool:
        """Returns whether, in each of the last four measurements, the device had no work left when the program asked
        for a batch."""
        return self._counters.dry >= _STEADY

    def is_fed(self) -> bool:
        """Returns whether, in each of the last four measurements, the device had work left when the program asked for a
        batch."""
        return self._counters.dry <= -_STEADY

    def _sent_from_pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=True)

    def _sent(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=not tensor.is_pinned())

    def _asked_now(self) -> torch.Event:
        """Records an event on the program's stream. Called for few batches only: recording releases the GIL, and the
        loader's pinning thread may then take the GIL."""
        asked = self._accelerator.event()
        asked.record(self._accelerator.current())
        return asked

    def _look(self, value: object, fetching: Span, asked: torch.Event | None) -> None:
        if asked is not None:
            self.note_dry(asked)
            nothing_new = self._counters.dry > 0
            self.news = "fed" if self.is_fed() else "starved" if self.is_starved() else None
        else:
            largest_bytes = max(map(bytes_of, tensors_in(value)), default=0)
            nothing_new = at_hand(largest_bytes, fetching.ns)
            self._prompt = min(self._prompt + 1, 0) if nothing_new else self._prompt - _PAUSES
            if self.in_haste and (self._prompt < -_PAUSES or largest_bytes > SMALL_BYTES):
                self.news = "not at hand"
        self._unseen, self._apart = 0, min(2 * self._apart, _RARELY) if nothing_new else 1
        if self.news == "not at hand":  # if this mode is chosen again, that choice is better informed
            self.in_haste, self._apart = False, _NEVER
