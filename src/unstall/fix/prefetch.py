"""`prefetch`: copies batches to the device before the program asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Generic, Literal, TypeVar, cast

import torch

from unstall.errors import UsageError
from unstall.fix.batches.fetching import StatefulLoader
from unstall.fix.batches.iteration import Iteration
from unstall.fix.batches.passes import Passes
from unstall.fix.batches.plain_loop import PlainLoop
from unstall.fix.batches.prefetch_stats import PrefetchStats
from unstall.fix.tensors.accelerator import accelerator_for, device_of, none_of

__all__ = ["Prefetch", "prefetch"]

Item = TypeVar("Item")
_DEEPEST = 64


def prefetch(
    loader: Iterable[Item], device: torch.device | str | int = "cuda", depth: int | Literal["auto"] = "auto"
) -> Prefetch[Item]:
    """Iterates over `loader`, with each batch's tensors on `device`. Fetches and copies batches ahead of the program.

        for images, labels in unstall.prefetch(loader): ...

    A thread fetches up to `depth` batches ahead, and copies them to the device on a separate stream. A batch that is
    not in pinned memory is first copied to a pinned buffer. The program may keep references to the batches.

    Fetching ahead never changes what the program computes. The thread that runs the program's loop fetches the first
    batches. In the following cases, this thread also fetches all later batches, so that only copies overlap:

    - Fetching draws from a global random number generator. For example, transforms in a DataLoader without workers may
      draw from such a generator.
    - The loader creates tensors on the device.
    - Another iteration over the loader has not ended.
    - The loop runs inside a torch mode, such as `with torch.device(...)`.

    The loader must not depend on which thread fetches. It must not require that a step ends before the next batch is
    fetched.

    Only one thread at a time may use an iterator. If two threads ask the same iterator for a batch at the same time,
    one of them gets a UsageError, and no batch is lost.

    Args:
        loader: A DataLoader, or any other iterable. Its batches are tensors of any shape and dtype, or nested tuples,
            lists, mappings and dataclasses of tensors.
        device: The device that batches are copied to. If torch does not have this device, batches are passed through
            unchanged.
        depth: The number of batches to fetch ahead, 0 to 64. "auto" measures the first batches. "auto" does not fetch
            ahead if fetching ahead could hide less than 2 % of a batch's time, or if fetching ahead turns out to be
            slower.

    Returns:
        An iterable with the loader's attributes and length. Its method `stats` returns a `PrefetchStats`.

    Raises:
        UsageError: `depth` is out of range, or torch has no device with this name or number.
    """
    if depth != "auto" and not (isinstance(depth, int) and 0 <= depth <= _DEEPEST):
        raise UsageError(f"depth is 'auto' or a number of batches from 0 to {_DEEPEST}, not {depth!r}")
    return Prefetch(loader, device_of(device), depth)


class Prefetch(Generic[Item]):
    """The iterable that `prefetch` returns. `stats` is an attribute of this class. All other attributes are those of
    the loader: if the program reads or sets such an attribute of this object, the loader's attribute is read or set."""

    def __init__(self, loader: Iterable[Item], device: torch.device, depth: int | Literal["auto"]) -> None:
        self._loader = loader
        self._device = device
        self._depth: int | Literal["auto"] = depth
        self._passes = Passes()

    def __iter__(self) -> Iterator[Item]:
        self._passes.state = None
        accelerator = accelerator_for(self._device)
        if accelerator is None:
            self._passes.fetch_ahead(0, f"{none_of(self._device)}: a plain loop")
            return cast(Iterator[Item], PlainLoop(self._loader, self._device, self._passes.counters))
        self._passes.make_room()
        return cast(Iterator[Item], Iteration(self._passes, self._loader, accelerator, self._depth))

    def __len__(self) -> int:
        return len(cast(Sized, self._loader))

    def __bool__(self) -> bool:
        return bool(self._loader)  # it may have no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_loader" not in self.__dict__:
            raise AttributeError(name)
        theirs = getattr(self._loader, name)
        ours = {"state_dict": self._state_dict, "load_state_dict": self._load_state_dict}
        return ours.get(name, theirs)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._loader, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        return prefetch, (self._loader, self._device, self._depth)

    def __repr__(self) -> str:
        wanted = f"device={str(self._device)!r}, depth={self._depth!r}"
        return f"prefetch({type(self._loader).__name__}, {wanted}): {self.stats().text}"

    def _state_dict(self) -> Mapping[str, object]:
        """Returns the loader's state after the last batch that the program received."""
        state = self._passes.state
        return cast(StatefulLoader, self._loader).state_dict() if state is None else state

    def _load_state_dict(self, state: Mapping[str, object]) -> None:
        self._passes.state = None
        cast(StatefulLoader, self._loader).load_state_dict(state)

    def stats(self) -> PrefetchStats:
        """Returns statistics of all batches that the program has received so far."""
        return self._passes.stats()
