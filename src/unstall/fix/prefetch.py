"""Batches on the device before they are asked for, with nothing that the program would have to take care of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch

from unstall.errors import UsageError
from unstall.fix.batches.iteration import Iteration
from unstall.fix.batches.passes import Passes
from unstall.fix.batches.plain_loop import PlainLoop
from unstall.fix.batches.prefetch_stats import PrefetchStats
from unstall.fix.tensors.accelerator import accelerator_for, device_of, none_of

__all__ = ["Prefetch", "prefetch"]

_DEEPEST = 64


def prefetch(
    loader: Iterable[Any], device: torch.device | str | int = "cuda", depth: int | Literal["auto"] = "auto"
) -> Prefetch:
    """What iterates like `loader`, with each batch's tensors on `device`.

        for images, labels in unstall.prefetch(loader): ...

    Tensors stand in any nest of tuples, lists, mappings and dataclasses. A thread fetches up to `depth` batches ahead,
    stages what is not pinned in pinned buffers of its own, and copies on a stream of its own; the batches are the
    program's to keep.

    Fetching ahead must not change what a program computes. The first batches of an iteration are fetched by the
    program's own thread, and so are all the others where that drew from a global random generator (as transforms do in
    a DataLoader without workers), where the loader makes tensors on the device itself, where another iteration of the
    loader is under way, and where the loop is within a torch mode of its thread (`with torch.device(…)`). Copies
    overlap then too. What the loader may not rely on is that the program has done its step before the next batch is
    fetched, or which thread fetches it.

    With "auto" the first batches are measured; where less than 2 % could be hidden, or fetching ahead turns out
    slower, it is not done. `.stats()` says what was. Where there is no such device the batches come as they are.
    """
    if depth != "auto" and not (isinstance(depth, int) and 0 <= depth <= _DEEPEST):
        raise UsageError(f"depth is 'auto' or a number of batches from 0 to {_DEEPEST}, not {depth!r}")
    return Prefetch(loader, device_of(device), depth)


class Prefetch:
    """See `prefetch`. Attributes that it has not, and those that are set, are the loader's own."""

    def __init__(self, loader: Iterable[Any], device: torch.device, depth: int | Literal["auto"]) -> None:
        self._loader = loader
        self._device = device
        self._depth: int | Literal["auto"] = depth
        self._passes = Passes()

    def __iter__(self) -> Iterator[Any]:
        self._passes.state = None
        accelerator = accelerator_for(self._device)
        if accelerator is None:
            self._passes.fetch_ahead(0, f"{none_of(self._device)}: a plain loop")
            return PlainLoop(self._loader, self._device, self._passes.counters)
        self._passes.make_room()
        return Iteration(self._passes, self._loader, accelerator, self._depth)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._loader)  # which may have no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_loader" not in self.__dict__:
            raise AttributeError(name)
        theirs = getattr(self._loader, name)
        ours = {"state_dict": self._state_dict, "load_state_dict": self._load_state_dict}
        return ours.get(name, theirs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._loader, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return prefetch, (self._loader, self._device, self._depth)

    def __repr__(self) -> str:
        wanted = f"device={str(self._device)!r}, depth={self._depth!r}"
        return f"prefetch({type(self._loader).__name__}, {wanted}): {self.stats().text}"

    def _state_dict(self) -> Any:
        """The loader's, as it was after the batch that the program got last."""
        state = self._passes.state
        return self._loader.state_dict() if state is None else state  # type: ignore[attr-defined]

    def _load_state_dict(self, state: Any) -> None:
        self._passes.state = None
        self._loader.load_state_dict(state)  # type: ignore[attr-defined]

    def stats(self) -> PrefetchStats:
        return self._passes.stats()
