"""`to_host`: starts copies of tensors to the host, and does not wait for the copies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic

import torch

from unstall.errors import UsageError
from unstall.figures import duration, size
from unstall.fix.tensors.accelerator import Accelerator, accelerator_of
from unstall.fix.tensors.nesting import Nest, map_tensors, tensors_in
from unstall.fix.tensors.parts import bytes_of, is_simple
from unstall.fix.wrapped import Printed, wrapped

# Smaller copies take less than 0.1 ms on PCIe 5.0, on the current stream. Larger ones get a stream of their own.
LARGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class CopyStats(Printed):
    """Statistics of one copy to the host. Times are in ns.

    Attributes:
        bytes: The bytes that are copied.
        by: How they are copied: by "the current stream", "a copy stream" or "a plain copy". If there are several ways,
            they are joined by " and ".
        beside_ns: The time from the call of `to_host` to the first call of `result`. None if `result` was not called
            yet.
        waited_ns: The time for which `result` waited.
    """

    bytes: int
    by: str
    beside_ns: int | None
    waited_ns: int

    @property
    def text(self) -> str:
        if self.beside_ns is None:
            return f"{size(self.bytes)} by {self.by}, not read yet"
        return (
            f"{size(self.bytes)} by {self.by}: the host went on for {duration(self.beside_ns)}, "
            f"then waited {duration(self.waited_ns)}"
        )


class HostFuture(Generic[Nest]):
    """The future that `to_host` returns. `result()` or `await` waits until the value has been copied, and returns the
    value on the host."""

    def __init__(self, value: Nest, events: list[torch.Event], size_bytes: int, by: str) -> None:
        self._value = value
        self._events = events
        self._bytes, self._by = size_bytes, by
        self._asked = time.perf_counter_ns()
        self._read: int | None = None
        self._waited = 0

    def done(self) -> bool:
        """Returns whether the copy has ended. `result()` then returns without waiting."""
        return all(event.query() for event in self._events)

    def result(self) -> Nest:
        """Waits for the copy, but not for later work of the device. Returns the value on the host."""
        if self._read is None:
            start = time.perf_counter_ns()
            for event in self._events:
                if not event.query():
                    event.synchronize()
            self._waited = time.perf_counter_ns() - start
            self._read = start
            self._events = []
        return self._value

    def __await__(self) -> Generator[object, None, Nest]:
        if not self.done():
            waiting = asyncio.get_running_loop().run_in_executor(None, self.result)
            yield from waiting.__await__()
        return self.result()

    def __repr__(self) -> str:
        if self._read is None:
            return wrapped(f"<HostFuture: {'there' if self.done() else 'under way'}, {self.stats().text}>")
        return wrapped(f"<HostFuture: {self.stats().text}>")

    def stats(self) -> CopyStats:
        """Returns statistics of the copy: how many bytes it has, how it is made, and how long `result` waited for
        it."""
        beside = None if self._read is None else self._read - self._asked
        return CopyStats(self._bytes, self._by, beside, self._waited)


def to_host(value: Nest) -> HostFuture[Nest]:
    """Starts to copy tensors to the host with their current values. Later writes to the tensors do not change the
    copies.

        loss_on_host = unstall.to_host(loss)
        ...  # launch the next step
        print(loss_on_host.result().item())

    Several threads may call `to_host` at the same time.

    Args:
        value: A tensor of any shape and dtype, or nested tuples, lists, mappings and dataclasses of tensors.

    Returns:
        A future. Its method `result` returns `value` with all tensors on the CPU. These tensors are detached from
        autograd. They have the same shapes and dtypes, and the strides that `.cpu()` gives. Copies of device tensors
        are in pinned memory. When a copy is freed, torch reuses its memory. Tensors that were on the CPU are cloned.

    Raises:
        UsageError: A CUDA graph is being captured.
    """
    events: list[torch.Event] = []
    on_host: dict[torch.device, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    total = 0

    def start(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal total
        total += bytes_of(tensor)
        accelerator = accelerator_of(tensor.device)
        if accelerator is None or not is_simple(tensor):
            return tensor.detach().clone() if tensor.device.type == "cpu" else tensor.detach().cpu()
        if accelerator.capturing():
            raise UsageError("to_host() cannot be captured in a CUDA graph: return the tensor, and copy it after")
        source = tensor.detach().resolve_conj().resolve_neg()
        target = torch.empty_like(source, device="cpu", pin_memory=True)
        on_host.setdefault(accelerator.device, []).append((source, target))
        return target

    with torch.no_grad():
        result = map_tensors(value, start)
        ways = set()
        for device, pairs in on_host.items():
            accelerator = accelerator_of(device)
            assert accelerator is not None
            ways.add(_copy(accelerator, pairs, events))
    if not tensors_in(value) or not ways:
        ways = {"a plain copy"}
    return HostFuture(result, events, total, " and ".join(sorted(ways)))


def _copy(accelerator: Accelerator, pairs: list[tuple[torch.Tensor, torch.Tensor]], events: list[torch.Event]) -> str:
    current = accelerator.current()
    stream, way = current, "the current stream"
    if sum(bytes_of(source) for source, _ in pairs) >= LARGE_BYTES:
        try:
            # The program may write to its tensors at once, so clone them: that takes 1/50 of the copy's time.
            pairs = [(source.clone(), target) for source, target in pairs]
            stream, way = accelerator.stream("out"), "a copy stream"
            stream.wait_stream(current)
        except torch.OutOfMemoryError:
            stream, way = current, "the current stream"
    with accelerator.on(stream):
        for source, target in pairs:
            target.copy_(source, non_blocking=True)
            if stream != current:
                source.record_stream(stream)
    event = accelerator.event()
    event.record(stream)
    events.append(event)
    return way
