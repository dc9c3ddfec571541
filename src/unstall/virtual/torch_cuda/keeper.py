"""What `torch_cuda` asks of the simulation and of the shim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Keeper(Protocol):
    """Ties the shim's log to the simulation. Each of these takes in all that was logged before it answers."""

    def memory_stats(self, device: int) -> Mapping[str, int]:
        """Every key of torch.cuda.memory_stats()."""

    def memory_snapshot(self, device: int) -> Sequence[Mapping[str, Any]]:
        """The segments with their blocks, as torch.cuda.memory_snapshot() gives them; `stream` is c10's number."""

    def mem_get_info(self, device: int) -> tuple[int, int]:
        """Free and total bytes."""

    def reset_peak(self, device: int) -> None: ...

    def reset_accumulated(self, device: int) -> None: ...

    def elapsed_ms(self, start: int, end: int) -> float:
        """Between two events by their numbers in the log."""

    def set_memory_fraction(self, device: int, fraction: float) -> None: ...


class Shim(Protocol):
    """The part of the shim that is used here. `device` is a device's index, `stream` c10's number on that device."""

    def append(
        self, code: int, device: int, stream: int, a: int, b: int, id_or_name: int | str | None, flags: int
    ) -> None: ...

    def device_count(self) -> int: ...

    def default_generator(self, device: int) -> Any: ...

    def current_device(self) -> int: ...

    def set_device(self, device: int) -> None: ...

    def current_stream(self, device: int) -> int: ...

    def set_stream(self, device: int, stream: int) -> None: ...

    def new_stream(self, device: int, priority: int) -> int: ...

    def sync_device(self, device: int) -> None: ...

    def is_capturing(self, device: int, stream: int) -> bool: ...

    def capture_begin(self, graph: int, device: int, stream: int, pool: int, mode: str) -> None: ...

    def refused_in_capture(self, device: int, stream: int) -> bool:
        """Whether a call that waits for this stream is refused now, and so spoils a capture."""

    def refuse_forks(self) -> None:
        """From now on children that are forked cannot use what they inherit on the devices."""

    def capture_end(self, graph: int) -> int | None:
        """How many operations the graph has, where that is known."""

    def replay(self, graph: int, device: int, stream: int) -> None: ...

    def free_graph(self, graph: int) -> None: ...
