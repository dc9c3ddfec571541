"""Many items from the host to the device, through a function and back, with copies and computation side by side."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch

from unstall.errors import UsageError
from unstall.fix.accelerator import Accelerator, accelerator_for, milliseconds
from unstall.fix.nesting import map_tensors, tensors_in
from unstall.fix.outside import Outside
from unstall.fix.staging import Sender
from unstall.fix.stream_map_stats import StreamMapStats

Strategy = Literal["auto", "streams", "engines"]
Out = Literal["pinned", "cpu", "device"]

_IN_FLIGHT = 4  # one on its way in, one computed, one on its way out, and one for the host to be late
_SMALL_NS = 2_000_000  # an item that takes less is bound by the host, whom streams and events cost time
_BETTER = 0.03  # by which "streams" must be faster than "engines", where results cannot depend on the order


def stream_map(
    fn: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    device: torch.device | str | int = "cuda",
    in_flight: int | Literal["auto"] = "auto",
    strategy: Strategy = "auto",
    out: Out = "pinned",
) -> StreamMap:
    """`fn` of each item, in order, as an iterator: the item's tensors are on the device, the result's come back.

        for scores in unstall.stream_map(model, batches): ...

    Items and results are nests of tensors. `fn` is called in this thread, once for each item and in order, up to
    `in_flight` items before its result is asked for. `out`: results in pinned memory, in plain memory ("cpu"), or left
    on the "device".

    Strategy "engines": one stream copies in, one computes, one copies out. Strategy "streams": an item goes all its way
    on one of a ring of streams, so that small kernels of several items run side by side. "auto" measures both on the
    first items, and leaves "streams" alone where `fn` writes to tensors that outlive a call, since then the order
    counts; of items so small that the host is what takes the time, also a plain loop.
    When memory runs out, fewer are in flight and that item's call is made again, the random state as before it.
    """
    if strategy not in ("auto", "streams", "engines"):
        raise UsageError(f"strategy is 'auto', 'streams' or 'engines', not {strategy!r}")
    if out not in ("pinned", "cpu", "device"):
        raise UsageError(f"out is 'pinned', 'cpu' or 'device', not {out!r}")
    if in_flight != "auto" and not (isinstance(in_flight, int) and in_flight >= 1):
        raise UsageError(f"in_flight is 'auto' or a number from 1 on, not {in_flight!r}")
    return StreamMap(fn, items, torch.device(device), in_flight, strategy, out)


_IN_ORDER = "the function writes to tensors that outlive a call, so its calls stay in order"


@dataclass(slots=True)
class _Flight:
    result: Any
    on_device: list[torch.Tensor]  # that the program gets
    end: Any
    strategy: str


class StreamMap:
    """See `stream_map`. One pass over the items; closing it, or dropping it, lets go of what is in flight."""

    def __init__(
        self,
        fn: Callable[[Any], Any],
        items: Iterable[Any],
        device: torch.device,
        in_flight: int | Literal["auto"],
        strategy: Strategy,
        out: Out,
    ) -> None:
        self._fn, self._out, self._asked_for = fn, out, strategy
        self._items: Iterator[Any] = iter(items)
        self._device = device
        self._accelerator = accelerator_for(device)
        self._window = _IN_FLIGHT if in_flight == "auto" else in_flight
        self._fits = in_flight != "auto"  # whether the window is known to
        self._flights: deque[_Flight] = deque()
        self._ended = False
        self._strategy: str = "engines" if strategy == "auto" else strategy
        self._note = "asked for" if strategy != "auto" else "the first items are being measured"
        self._open = strategy == "auto"  # whether it may still change
        self._seen: dict[Any, bool] = {}  # by the shapes of items: whether results lie in memory that outlives a call
        self._stateful = False
        self._shrunk = self._items_done = self._sent = self._bytes_in = self._bytes_out = 0
        self._alone_ns: int | None = None
        self._ends: list[tuple[str, Any]] | None = []
        self._item_ns: dict[str, int] = {}
        if self._accelerator is None:
            self._strategy, self._open = "plain", False
            self._note = f"there is no {device.type} device with streams here"
        else:
            self._sender = Sender(self._accelerator, self._window + 1)

    def __iter__(self) -> StreamMap:
        return self

    def __next__(self) -> Any:
        if self._accelerator is None:
            return self._plain(next(self._items))
        while not self._ended and len(self._flights) < self._window:
            try:
                item = next(self._items)
            except StopIteration:
                self._ended = True
            else:
                self._launch(self._accelerator, item)
        if not self._flights:
            raise StopIteration
        flight = self._flights.popleft()
        flight.end.synchronize()
        self._items_done += 1
        self._measure(flight)
        current = self._accelerator.current()
        for tensor in flight.on_device:
            tensor.record_stream(current)
        return self._delivered(flight.result) if self._out == "cpu" else flight.result

    def close(self) -> None:
        """What was computed and not taken is dropped."""
        self._ended = True
        flights, self._flights = self._flights, deque()
        if self._accelerator is not None:  # tensors of the function's own may be freed on the program's stream
            for flight in flights:
                self._accelerator.current().wait_event(flight.end)

    def __del__(self) -> None:
        if self._flights:
            self.close()

    def stats(self) -> StreamMapStats:
        return StreamMapStats(
            items=self._items_done,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            strategy=self._strategy,
            in_flight=self._window if self._accelerator is not None else 1,
            shrunk=self._shrunk,
            item_ns=dict(self._item_ns),
            alone_ns=self._alone_ns,
            note=self._note,
        )

    def _launch(self, accelerator: Accelerator, item: Any) -> None:
        if self._strategy == "plain":
            self._flights.append(self._in_place(accelerator, item))
            return
        device_state, host_state = accelerator.random_state(), torch.get_rng_state()
        while True:
            try:
                self._flights.append(self._sent_off(accelerator, item))
                self._sent += 1
                return
            except torch.OutOfMemoryError:
                if not self._flights and self._window == 1:
                    raise
                self._shrunk += 1
                self._window = max(1, min(self._window // 2, len(self._flights)))
                for flight in self._flights:
                    flight.end.synchronize()
                accelerator.stream("compute").synchronize()
                accelerator.release_cache()
                accelerator.set_random_state(device_state)
                torch.set_rng_state(host_state)

    def _sent_off(self, accelerator: Accelerator, item: Any) -> _Flight:
        shapes = tuple((tuple(t.shape), t.dtype) for t in tensors_in(item))
        first = shapes not in self._seen
        if first:  # with nothing beside it: what it makes and keeps for later calls is then there for all streams
            for flight in self._flights:
                flight.end.synchronize()
        start = time.perf_counter_ns()
        strategy = self._next_strategy()
        if strategy == "plain" and not first:
            return self._in_place(accelerator, item)
        engines = strategy != "streams"
        compute = accelerator.stream("compute" if engines else f"lane {self._sent % self._window}")
        copy_in = accelerator.stream("in") if engines else compute
        copy_out = accelerator.stream("out") if engines else compute
        compute.wait_stream(accelerator.current())
        sent = self._sender.send(item, copy_in)
        sent.hand_over(compute)
        with accelerator.on(compute):
            result = self._watched(shapes, sent.value, sent.tensors) if first else self._fn(sent.value)
            if self._seen[shapes]:  # the next call may write there
                result = map_tensors(result, lambda t: t.clone() if t.device.type != "cpu" else t)
        end = accelerator.event(timed=True, blocking=True)
        on_device = [tensor for tensor in tensors_in(result) if tensor.device == accelerator.device]
        if self._out == "device":
            end.record(compute)
        else:
            copy_out.wait_stream(compute)
            with accelerator.on(copy_out), torch.no_grad():
                result = map_tensors(result, lambda tensor: self._to_host(accelerator, tensor, copy_out))
                end.record(copy_out)
            on_device = []
        self._bytes_in += sent.bytes
        self._bytes_out += sum(tensor.nbytes for tensor in tensors_in(result)) if self._out != "device" else 0
        if first:
            end.synchronize()
            if self._alone_ns is None:
                self._alone_ns = time.perf_counter_ns() - start
            self._fit(accelerator, sent.bytes)
        return _Flight(result, on_device, end, strategy)

    def _in_place(self, accelerator: Accelerator, item: Any) -> _Flight:
        """On the program's own stream, after all that is in flight."""
        current = accelerator.current()
        for flight in self._flights:
            flight.end.synchronize()
        moved = map_tensors(item, lambda tensor: tensor.to(accelerator.device))
        result = self._fn(moved)
        if self._out != "device":
            with torch.no_grad():
                result = map_tensors(result, lambda tensor: self._to_host(accelerator, tensor, current))
        end = accelerator.event(timed=True)
        end.record(current)
        self._sent += 1
        self._bytes_in += sum(tensor.nbytes for tensor in tensors_in(moved))
        self._bytes_out += sum(tensor.nbytes for tensor in tensors_in(result)) if self._out != "device" else 0
        return _Flight(result, [], end, "plain")

    def _to_host(self, accelerator: Accelerator, tensor: torch.Tensor, stream: Any) -> torch.Tensor:
        if tensor.device != accelerator.device:
            return tensor
        if type(tensor) is not torch.Tensor or tensor.layout != torch.strided or tensor.is_quantized:
            return tensor.detach().cpu()
        source = tensor.detach().resolve_conj().resolve_neg()
        target = torch.empty_like(source, device="cpu", pin_memory=True)
        target.copy_(source, non_blocking=True)
        source.record_stream(stream)
        return target

    def _watched(self, shapes: Any, item: Any, inputs: list[torch.Tensor]) -> Any:
        """The first call for such shapes, and what it does beside its result."""
        with Outside(inputs) as outside:
            result = self._fn(item)
        self._seen[shapes] = outside.keeps(result)
        if (outside.writes or self._seen[shapes]) and not self._stateful:
            self._stateful = True
            if self._strategy == "streams":
                self._settle("engines", _IN_ORDER)
        return result

    def _fit(self, accelerator: Accelerator, bytes_in: int) -> None:
        """The window that memory has room for, by the peak of one item."""
        if self._fits:
            return
        self._fits = True
        free, _ = accelerator.memory_bytes()
        self._window = max(1, min(self._window, int(0.8 * free) // max(3 * bytes_in, 1)))

    def _next_strategy(self) -> str:
        """While both are measured they take turns, a window of items each."""
        if not self._open:
            return self._strategy
        candidates = self._candidates()
        return candidates[(self._sent // (2 * self._window)) % len(candidates)]

    def _candidates(self) -> list[str]:
        small = self._alone_ns is not None and self._alone_ns < _SMALL_NS
        return ["engines"] + ["streams"] * (not self._stateful) + ["plain"] * small

    def _measure(self, flight: _Flight) -> None:
        """From end to end of items of one strategy, each with the window full."""
        if self._ends is None:
            return
        self._ends.append((flight.strategy, flight.end))
        if len(self._ends) < 4 * self._window * len(self._candidates()) + 1:
            return
        took: dict[str, list[float]] = {}
        for (before, start), (after, end) in zip(self._ends[1:-1], self._ends[2:], strict=True):
            if before == after:
                took.setdefault(after, []).append(milliseconds(start, end))
        self._ends = None
        self._item_ns = {name: int(median(each) * 1e6) for name, each in took.items()}
        if not self._open:
            return
        best, why = "engines", _IN_ORDER if self._stateful else "streams were not faster"
        for other in self._item_ns:
            if self._item_ns[other] < (1 - _BETTER) * self._item_ns[best]:
                why = f"{self._item_ns[best] / self._item_ns[other]:.2f} times as fast as {best}"
                best = other
        if best == "plain":
            self._window, why = 1, f"items are too small for streams: {why}"
        self._settle(best, why)

    def _settle(self, strategy: str, why: str) -> None:
        self._strategy, self._note, self._open = strategy, why, False

    def _delivered(self, result: Any) -> Any:
        return map_tensors(result, lambda tensor: tensor.clone() if tensor.is_pinned() else tensor)

    def _plain(self, item: Any) -> Any:
        usable = self._device.type == "cpu"
        result = self._fn(map_tensors(item, lambda tensor: tensor.to(self._device)) if usable else item)
        self._items_done += 1
        if self._out == "device":
            return result
        return map_tensors(result, lambda tensor: tensor.detach().cpu())
