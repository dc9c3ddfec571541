"""Batches of a plain loop, within a prefetch: fetched and copied by the program's own thread, as by the loop itself."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from unstall.fix.batches.fetching import Batches
from unstall.fix.batches.seen import at_hand
from unstall.fix.batches.stats import Tally
from unstall.fix.tensors.accelerator import Accelerator
from unstall.fix.tensors.nesting import map_tensors
from unstall.fix.tensors.parts import bytes_of
from unstall.fix.tensors.staging import SMALL_BYTES

_RARELY = 64  # of so many batches one is looked at, if those before told that nothing is to be gained
_PAUSES = 8  # one fetch in so many may be late among small batches: the host has paused, perhaps


class InPlace:
    """The host bounds such a loop, or the loader's thread that pins, which needs the interpreter's lock meanwhile: so
    little is done beside the loop's own work, and next to nothing for each batch."""

    def __init__(self, accelerator: Accelerator, tally: Tally, follows_loader: bool) -> None:
        self._accelerator, self._tally = accelerator, tally
        self._device = accelerator.device
        self._follows_loader = follows_loader
        self._unseen, self._apart = 0, 1 if follows_loader else sys.maxsize  # batches since one was looked at
        self._largest_bytes = 0  # of a tensor of the last batch
        self._prompt = 0  # one more for each that came at once, up to 0; _PAUSES less for each that was late
        self.dry = 0  # batches in a row for which the device was waiting when they came; below 0: was not
        self.in_haste = not follows_loader  # whether it goes on only as long as batches are small, and come at once
        self.is_fed = False  # the device was not waiting, this time and the time before
        self.is_over = False  # a batch was large, or several were late

    def batch(self, batches: Batches, entered: int) -> Any:
        """The next one on the device. `entered`: the time in ns when it was asked for. Raises StopIteration."""
        self._unseen += 1
        asked = self._asked_now() if self._unseen >= self._apart else None
        value = next(batches.iterator)
        fetched = time.perf_counter_ns()
        if asked is not None:
            self._look(asked)
        if self._follows_loader:
            moved = map_tensors(value, self._moved_at_once)
        else:
            self._largest_bytes = 0
            moved = map_tensors(value, self._moved)
            if self.in_haste:
                self._note_prompt(fetched - entered)
        tally = self._tally
        tally.batches += 1
        tally.fetch_ns += fetched - entered
        tally.waited_ns += time.perf_counter_ns() - entered
        return moved

    def note_dry(self, asked: Any) -> None:
        """`asked`: what the device had to do when the batch was asked for."""
        self.dry = max(1, self.dry + 1) if asked.query() else min(-1, self.dry - 1)

    def _moved_at_once(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=True)

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        self._largest_bytes = max(self._largest_bytes, bytes_of(tensor))
        return tensor.to(self._device, non_blocking=not tensor.is_pinned())

    def _asked_now(self) -> Any:
        """Each such call gives up the interpreter's lock, which the loader's thread that pins may take meanwhile."""
        asked = self._accelerator.event()
        asked.record(self._accelerator.current())
        return asked

    def _look(self, asked: Any) -> None:
        self.note_dry(asked)
        self._unseen, self._apart = 0, min(2 * self._apart, _RARELY) if self.dry > 0 else 1
        self.is_fed = self.dry <= -2

    def _note_prompt(self, fetch_ns: int) -> None:
        prompt = at_hand(self._largest_bytes, fetch_ns)
        self._prompt = min(self._prompt + 1, 0) if prompt else self._prompt - _PAUSES
        if self._prompt < -_PAUSES or self._largest_bytes > SMALL_BYTES:
            self.in_haste, self.is_over = False, True
