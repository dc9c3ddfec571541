"""Batches of a plain loop, within a prefetch: fetched and copied by the program's own thread, as by the loop itself."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from unstall.fix.batches.fetching import Batches
from unstall.fix.batches.seen import HANDING_OVER_NS, at_hand
from unstall.fix.batches.stats import Tally
from unstall.fix.tensors.accelerator import Accelerator
from unstall.fix.tensors.nesting import map_tensors, tensors_in
from unstall.fix.tensors.parts import bytes_of
from unstall.fix.tensors.staging import SMALL_BYTES

_RARELY = 64  # of so many batches one is looked at, if those before told that nothing is to be gained
_PAUSES = 8  # one look in so many may find a small batch late: the host has paused, perhaps
_STEADY = 4  # looks in a row that tell the same of the device


class InPlace:
    """The host bounds such a loop, or the loader's thread that pins, which needs the interpreter's lock meanwhile: so
    next to nothing is done beside the loop's own work, and few batches are looked at."""

    def __init__(self, accelerator: Accelerator, tally: Tally, of_workers: int | None) -> None:
        """`of_workers`: how many batches a loader's own workers may hold ready when it begins. These tell nothing of
        how fast they are. None: batches are not theirs, but small and at hand."""
        self._accelerator, self._tally = accelerator, tally
        self._device = accelerator.device
        self._from_workers = of_workers is not None
        self.in_haste = of_workers is None  # whether it goes on only as long as batches are small, and come at once
        self._unseen, self._apart = -(of_workers or 0), 1  # batches since one was looked at, and until the next is
        self._prompt = 0  # one more for each look at a batch that came at once, up to 0; _PAUSES less for a late one
        self._dry = 0  # batches in a row for which the device was waiting when they came; below 0: was not
        self.is_over = False  # it is no longer the case that nothing is to be gained

    def batch(self, batches: Batches, entered: int) -> Any:
        """The next one on the device. `entered`: the time in ns when it was asked for. Raises StopIteration."""
        self._unseen += 1
        looks = self._unseen >= self._apart
        asked = self._asked_now() if looks and self._from_workers else None
        start = time.perf_counter_ns()
        value = next(batches.iterator)
        fetch_ns = time.perf_counter_ns() - start
        if looks or (fetch_ns >= HANDING_OVER_NS and self.in_haste):
            self._look(value, fetch_ns, asked)
        moved = map_tensors(value, self._sent_from_pinned if self._from_workers else self._sent)
        tally = self._tally
        tally.batches += 1
        tally.fetch_ns += fetch_ns
        tally.waited_ns += time.perf_counter_ns() - entered
        return moved

    def note_dry(self, asked: Any) -> None:
        """`asked`: what the device had to do when the batch was asked for."""
        self._dry = max(1, self._dry + 1) if asked.query() else min(-1, self._dry - 1)

    def is_starved(self) -> bool:
        """Whether the device was waiting for each of the last batches."""
        return self._dry >= _STEADY

    def _sent_from_pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=True)

    def _sent(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=not tensor.is_pinned())

    def _asked_now(self) -> Any:
        """Each such call gives up the interpreter's lock, which the loader's thread that pins may take meanwhile."""
        asked = self._accelerator.event()
        asked.record(self._accelerator.current())
        return asked

    def _look(self, value: Any, fetch_ns: int, asked: Any) -> None:
        if asked is not None:
            self.note_dry(asked)
            nothing_new = self._dry > 0
            self.is_over = self._dry <= -_STEADY
        else:
            largest_bytes = max(map(bytes_of, tensors_in(value)), default=0)
            nothing_new = at_hand(largest_bytes, fetch_ns)
            self._prompt = min(self._prompt + 1, 0) if nothing_new else self._prompt - _PAUSES
            self.is_over = self._prompt < -_PAUSES or largest_bytes > SMALL_BYTES
        self._unseen, self._apart = 0, min(2 * self._apart, _RARELY) if nothing_new else 1
        if self.is_over and self.in_haste:  # whoever comes back knows more
            self.in_haste, self._apart = False, sys.maxsize
