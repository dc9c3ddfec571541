"""A loop over the loader without prefetching, used if no device with streams is available."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from unstall.fix.batches.prefetch_stats import PrefetchCounters
from unstall.fix.tensors.accelerator import is_there
from unstall.fix.tensors.nesting import map_tensors
from unstall.guest.steps import HandedOn, item_handed_on, loop_ended


class PlainLoop:
    """An iterator that fetches batches when the program asks for them, on the program's own thread. Tensors are moved
    to `device` if torch has this device. After an error, the iterator can continue if the loader's iterator can."""

    def __init__(self, loader: Iterable[object], device: torch.device, counters: PrefetchCounters) -> None:
        self._loader = loader
        self._batches: Iterator[object] = HandedOn(iter(loader))
        self._device, self._counters = device, counters
        self._here = is_there(device)

    def __iter__(self) -> PlainLoop:
        return self

    def __next__(self) -> object:
        try:
            value = next(self._batches)
        except StopIteration:
            loop_ended(self._loader)
            raise
        self._counters.batches += 1
        if self._here:
            value = map_tensors(value, lambda tensor: tensor.to(self._device))
        item_handed_on(self._loader)
        return value

    def __repr__(self) -> str:
        return "<iteration of a prefetch: a plain loop>"

    def close(self) -> None:
        """Ends the iteration: no more batches are yielded, and the loader's iterator is freed."""
        self._batches = iter(())
