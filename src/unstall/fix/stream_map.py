"""`stream_map`: copies items to the device, computes, and copies results back. The three activities overlap for
different items."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, Literal, TypeVar

import torch

from unstall.errors import UsageError
from unstall.figures import counted
from unstall.fix.items.one_by_one import StreamMapCounters, on_and_back, without_streams
from unstall.fix.items.results import Calls, Flight, cloned, shapes_of, to_pinned, unpinned
from unstall.fix.items.stream_map_stats import StreamMapStats
from unstall.fix.items.trial import Trial, best_of, why
from unstall.fix.tensors.accelerator import Accelerator, accelerator_for, device_of, milliseconds, none_of
from unstall.fix.tensors.nesting import map_tensors, tensors_in
from unstall.fix.tensors.parts import bytes_of, record
from unstall.fix.tensors.staging import SMALL_BYTES, Sender
from unstall.fix.tensors.storages import OutsideWrites
from unstall.fix.wrapped import wrapped
from unstall.guest.rng import RandomStates, drawn_from, random_states
from unstall.guest.steps import HandedOn, item_handed_on, loop_ended

Strategy = Literal["auto", "streams", "engines"]
Out = Literal["pinned", "cpu", "device"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_IN_FLIGHT = 5  # one copied in, one computed, one copied out, and the rest in case the host is late
_WATCHED = 2  # calls observed for each shape: the second may write to tensors that the first kept
_BOUND = 0.9  # if copying takes this share of an item's time, no strategy can be faster
_SMALL_BYTES = (
    8 << 20
)  # in and out: about 150 µs on PCIe 5.0, as long as the host needs for an item's streams and events
_WAITED_BYTES = 512 << 10  # in and out: about 10 µs, so short that each item can be waited for


def stream_map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    device: torch.device | str | int = "cuda",
    in_flight: int | Literal["auto"] = "auto",
    strategy: Strategy = "auto",
    out: Out = "pinned",
) -> StreamMap[Result]:
    """Maps `fn` over items. The copy of one item to the device overlaps with the computation of another item and with
    the copy of a third item's result to the host.

        for scores in unstall.stream_map(model, batches): ...

    `fn` is called in the caller's thread, once for each item, in order. Up to `in_flight` items are in flight: `fn` was
    called with them, and the program has not taken their results. If device memory runs out, the number of items in
    flight is reduced. The call that ran out of memory is then repeated with the same random state.

    Only one thread at a time may use an iterator. If two threads ask the same iterator for a result at the same time,
    one of them gets a UsageError, and no result is lost.

    Args:
        fn: The function. It takes an item whose tensors are on the device, and returns tensors.
        items: An iterable. Its items are tensors of any shape and dtype, or nested tuples, lists, mappings and
            dataclasses of tensors. Results of `fn` may have the same forms.
        device: The device that items are copied to. If torch does not have this device, `fn` gets the items unchanged.
        in_flight: How many items may be in flight at a time, at least 1. "auto": 5, or fewer if memory is short.
        strategy: "engines": one stream copies items in, a second one computes, and a third one copies results out.
            "streams": each item uses one of several streams for its copies and its computation, so that small kernels
            of several items run at the same time. "auto": measures "engines" and "streams" on the first items. "auto"
            does not try "streams" if `fn` writes to tensors that outlive a call, because the order of calls then
            matters. For items of up to 8 MiB, "auto" also tries "plain": copies and computation on the program's
            current stream.
        out: The memory that results are returned in. "pinned": pinned host memory. "cpu": pageable host memory.
            "device": device memory, without a copy to the host.

    Returns:
        An iterator over the results, in order. Its method `stats` returns a `StreamMapStats`.

    Raises:
        UsageError: An argument is invalid.
    """
    if not callable(fn):
        raise UsageError(f"stream_map() calls a function for each item, and {fn!r} is none")
    if not hasattr(items, "__iter__") and not hasattr(items, "__getitem__"):
        raise UsageError(f"stream_map() takes the items of a list or of whatever can be iterated, not {items!r}")
    if strategy not in ("auto", "streams", "engines"):
        raise UsageError(f"strategy is 'auto', 'streams' or 'engines', not {strategy!r}")
    if out not in ("pinned", "cpu", "device"):
        raise UsageError(f"out is 'pinned', 'cpu' or 'device', not {out!r}")
    if in_flight != "auto" and not (isinstance(in_flight, int) and in_flight is not True and in_flight >= 1):
        raise UsageError(f"in_flight is 'auto' or a number from 1 on, not {in_flight!r}")
    return StreamMap(fn, items, device_of(device), in_flight, strategy, out)


_MEASURED, _TOO_FEW = "the first items are being measured", "too few items to measure which way is faster"
_STREAM_BYTES = 32 << 20  # that cuBLAS keeps for each stream on a Hopper, and no more elsewhere
_ONE = "only one item is in flight"
_NO_ROOM = "each further stream keeps memory for itself, and memory is short"
_IN_ORDER = "the function writes to tensors that outlive a call, so its calls stay in order"


class StreamMap(Generic[Result]):
    """The iterator that `stream_map` returns. It can be iterated over once. If the iterator is closed or deleted, the
    results of the items in flight are dropped."""

    def __init__(
        self,
        fn: Callable[[Any], Result],
        items: Iterable[object],
        device: torch.device,
        in_flight: int | Literal["auto"],
        strategy: Strategy,
        out: Out,
    ) -> None:
        self._fn, self._out = fn, out
        self._items: Iterator[object] = HandedOn(iter(items))
        self._refills = type(items) not in (list, tuple)  # whether code between items may write to them
        self._accelerator = accelerator_for(device)
        self._window = _IN_FLIGHT if in_flight == "auto" else in_flight
        self._fits = in_flight != "auto"  # whether the window is known to fit into memory
        self._flights: deque[Flight[Result]] = deque()
        self._ended = False
        self._error: BaseException | None = None  # raised after the results of all items in flight
        self._strategy: str = "engines" if strategy == "auto" else strategy
        self._note = "asked for" if strategy != "auto" else _MEASURED
        self._open = strategy == "auto"  # whether the strategy may still change
        self._calls: dict[tuple[object, ...], Calls] = {}  # by the shapes of items
        self._stateful = self._small = False
        self._has_room = True  # whether each item in flight may have a stream of its own, which keeps memory
        self._each = 0  # bytes of an item in and out
        self._rng_used: set[str] = set()  # host RNGs that observed calls used
        self._trial: Trial | None = None
        self._made: torch.Event | None = None  # event after the observed calls
        self._alone = False  # whether items run one by one from now on
        self._idle = 0  # items in a row for which the device was idle
        self._one_thread = threading.Lock()
        self._blocked = False  # whether the host waited for the last item's copy; then an idle device shows nothing
        self._spans: list[tuple[torch.Event, torch.Event]] = []  # around one item's copy in, computation and copy out
        self._counters = StreamMapCounters()
        self._loop: Iterator[Result] | None = None  # over the remaining items, if they run one by one
        self._shrunk = self._sent = 0
        self._item_ns: dict[str, int] = {}
        if self._accelerator is None:
            self._strategy, self._open = "plain", False
            self._note = none_of(device)
            self._loop = map(without_streams(fn, device, self._counters, back=out != "device"), self._items)
        else:
            self._order = self._accelerator.event()
            self._sender = Sender(self._accelerator, self._window + 1, refills=self._refills)

    def __iter__(self) -> StreamMap[Result]:
        return self

    def __next__(self) -> Result:
        if not self._one_thread.acquire(blocking=False):
            raise UsageError(
                "two threads ask the same stream_map for a result at the same time. Take the results in one thread and "
                "pass them on, or give each thread a stream_map of its own"
            )
        try:
            loop = self._loop
            result = next(loop) if loop is not None else self._next()
        except StopIteration:
            loop_ended(self._fn)
            raise
        finally:
            self._one_thread.release()
        item_handed_on(self._fn)
        return result

    def _next(self) -> Result:
        accelerator = self._accelerator
        if accelerator is None:  # it had a loop, and was closed
            raise StopIteration
        if not self._flights:
            self._raise_late()
            if self._alone and not self._ended:
                one = on_and_back(
                    self._fn, accelerator, self._counters, refills=self._refills, pinned=self._out == "pinned"
                )
                self._loop = map(one, self._items)
                return next(self._loop)
        while not (self._ended or self._alone or self._error) and len(self._flights) < self._window:
            self._advance(accelerator)
        if not self._flights:
            self._raise_late()
            raise StopIteration  # closed, or at the end
        flight = self._flights.popleft()
        flight.end.synchronize()
        self._counters.items += 1
        if self._trial is not None:
            self._try(self._trial, flight)
        if flight.on_device:
            current = accelerator.current()
            record(flight.on_device, current)
        return unpinned(flight.result) if self._out == "cpu" else flight.result

    def _advance(self, accelerator: Accelerator) -> None:
        """Sends the next item to the device. If this raises an exception, the program gets the results of earlier items
        first. The exception is raised after them."""
        try:
            self._sender.wait_until_read()
            try:
                item = next(self._items)
            except StopIteration:
                self._ended = True
            else:
                self._launch(accelerator, item)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._error = error

    def _raise_late(self) -> None:
        error, self._error = self._error, None
        if error is None:
            return
        try:
            raise error
        finally:
            del error  # its traceback has this frame

    def close(self) -> None:
        """Ends the iteration. Drops the results that the program has not taken."""
        self._ended, self._error, self._loop = True, None, None
        self._items = iter(())
        flights, self._flights = self._flights, deque()
        if self._accelerator is not None:  # the function's tensors may be freed on the program's stream
            for flight in flights:
                self._accelerator.current().wait_event(flight.end)

    def __del__(self) -> None:
        if self.__dict__.get("_flights"):
            self.close()

    def __repr__(self) -> str:
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        flying = f", {counted(len(self._flights), 'item')} in flight" if self._flights else ""
        ended = ", ended" if self._ended and not self._flights else ""
        return wrapped(f"stream_map({name}{flying}{ended}): {self.stats().text}")

    def stats(self) -> StreamMapStats:
        ended = all(end.query() for _, end in self._spans)
        apart = sum(milliseconds(*span) for span in self._spans) if self._spans and ended else None
        return StreamMapStats(
            items=self._counters.items,
            bytes_in=self._counters.bytes_in,
            bytes_out=self._counters.bytes_out,
            strategy=self._strategy,
            in_flight=self._window if self._accelerator is not None else 1,
            shrunk=self._shrunk,
            item_ns=dict(self._item_ns),
            apart_ns=int(apart * 1e6) if apart is not None else None,
            note=_TOO_FEW if self._note is _MEASURED and self._ended else self._note,
        )

    def _launch(self, accelerator: Accelerator, item: object) -> None:
        shapes = shapes_of(item)
        calls = self._calls.get(shapes)
        if calls is None:
            calls = self._calls[shapes] = Calls()
        watched = calls.count < _WATCHED
        strategy = self._strategy
        if self._open and self._trial is not None and not watched:
            strategy = self._trial.strategy_of(self._sent)
        if strategy == "plain" and not watched:
            flight: Flight[Result] | None = self._in_place(accelerator, item, calls)
        else:
            flight = self._sent_off(accelerator, item, calls, "engines" if strategy == "plain" else strategy)
        if flight is None:
            self._items = chain((item,), self._items)
            return
        calls.count += 1
        self._flights.append(flight)
        self._sent += 1
        if self._trial is None and self._sent == _WATCHED:
            self._fit(accelerator)
            self._trial = Trial(self._candidates(), self._sent, self._window)

    def _sent_off(self, accelerator: Accelerator, item: object, calls: Calls, strategy: str) -> Flight[Result] | None:
        """Sends an item to the device. If device memory runs out, halves the number of items in flight and tries again.
        Returns None if the item can be sent only after the program has taken results."""
        before = RandomStates({"torch", *self._rng_used}, [accelerator.device])
        while True:
            try:
                return self._through(accelerator, item, calls, strategy)
            except torch.OutOfMemoryError:
                alone = self._window == 1
                if alone and not (self._flights and self._out == "device"):
                    raise
            # Outside of `except`: the error's traceback would keep the call's tensors alive.
            self._wait_for_flights()
            accelerator.stream("compute").synchronize()
            accelerator.release_cache()
            before.put_back()
            if alone:
                return None
            self._shrunk += 1
            self._window = max(1, min(self._window // 2, len(self._flights)))
            self._has_room = False
            if self._open and self._trial is not None and "streams" in self._trial.strategies:
                self._trial, strategy = None, "engines"
                self._choose(strategy, _NO_ROOM)

    def _through(self, accelerator: Accelerator, item: object, calls: Calls, strategy: str) -> Flight[Result]:
        engines, watched = strategy != "streams", calls.count < _WATCHED
        compute = accelerator.stream("compute" if engines else f"lane {self._sent % self._window}")
        copy_in = accelerator.stream("in") if engines else compute
        copy_out = accelerator.stream("out") if engines else compute
        self._wait_for(accelerator.current(), compute)
        if self._made is not None:
            compute.wait_event(self._made)
        for flight in self._flights if watched else ():  # this call may write to memory that they read
            if flight.strategy != "engines":
                compute.wait_event(flight.end)
        sent = self._sender.send(item, copy_in)
        sent.lend(compute)
        spans = engines and not watched and not self._spans
        with accelerator.on(compute):
            begun = self._event_on(accelerator, compute) if spans else None
            result = self._watched(calls, sent.value, sent.tensors) if watched else self._fn(sent.value)
            if calls.keeps or calls.count == 0:  # the next call may write there
                result = cloned(result)
            if watched:
                self._made = self._event_on(accelerator, compute)
            computed = self._event_on(accelerator, compute) if spans else None
        end = accelerator.event(timed=True, blocking=True)
        on_device = [tensor for tensor in tensors_in(result) if tensor.device == accelerator.device]
        leaving = None
        if self._out == "device":
            end.record(compute)
        else:
            if engines:
                self._wait_for(compute, copy_out)
            with accelerator.on(copy_out), torch.no_grad():
                leaving = self._event_on(accelerator, copy_out) if spans else None
                result = map_tensors(result, lambda tensor: self._to_host(accelerator, tensor))
                end.record(copy_out)
            record(on_device, copy_out)
            on_device = []
        if begun is not None and computed is not None:
            out = [(leaving, end)] if leaving is not None else []
            self._spans = [(sent.start, sent.end), (begun, computed), *out]
        self._counters.bytes_in += sent.bytes
        return Flight(self._sent, result, on_device, end, strategy)

    def _wait_for(self, earlier: torch.Stream, later: torch.Stream) -> None:
        """Makes the stream `later` wait for the work in `earlier`. Unlike `wait_stream`, makes no new event."""
        self._order.record(earlier)
        later.wait_event(self._order)

    def _in_place(self, accelerator: Accelerator, item: object, calls: Calls) -> Flight[Result]:
        """Computes an item on the program's current stream, after all items in flight."""
        device, current = accelerator.device, accelerator.current()
        if self._flights and self._flights[-1].strategy != "plain":
            for flight in self._flights:
                current.wait_event(flight.end)
        self._blocked = False

        def move(tensor: torch.Tensor) -> torch.Tensor:
            size_bytes, pinned = bytes_of(tensor), tensor.is_pinned()
            exposed = pinned and self._refills  # pageable memory has been read on return
            self._counters.bytes_in += size_bytes
            self._blocked = self._blocked or exposed or (not pinned and size_bytes > SMALL_BYTES)
            return tensor.to(device, non_blocking=not exposed)

        result = self._fn(map_tensors(item, move))
        if calls.keeps:
            result = cloned(result)
        if self._out != "device":
            result = map_tensors(result, lambda tensor: self._to_host(accelerator, tensor))
        end = accelerator.event(timed=True)
        end.record(current)
        return Flight(self._sent, result, [], end, "plain")

    def _to_host(self, accelerator: Accelerator, tensor: torch.Tensor) -> torch.Tensor:
        copy = to_pinned(accelerator, tensor, wait=False)
        self._counters.bytes_out += bytes_of(tensor) if copy is not tensor else 0
        return copy

    def _watched(self, calls: Calls, item: object, inputs: list[torch.Tensor]) -> Result:
        """Calls the function with `item` and observes the call. Only the first two calls with items of the same shapes
        as `item` are observed. Stores which random number generators the function uses. Also stores whether the
        function writes to tensors that existed before the call and are not inputs of the call."""
        states = random_states()
        with OutsideWrites(inputs) as outside:
            result = self._fn(item)
        self._rng_used |= drawn_from(states, random_states())
        calls.keeps = calls.keeps or outside.keeps(result)
        if (outside.writes or calls.keeps) and not self._stateful:
            self._stateful = True
            if self._strategy == "streams":
                self._choose("engines", _IN_ORDER)
            elif self._trial is not None and self._open:
                self._wait_for_flights()
                self._trial = Trial(self._candidates(), self._sent, self._window)
        return result

    def _fit(self, accelerator: Accelerator) -> None:
        """Limits the number of items in flight, so that they fit into the free device memory. The size of an item is
        taken as the mean of the items so far. If the user chose the number, it is not changed.

        Also finds out whether the items in flight fit into the memory if each item has a stream of its own.
        """
        each = self._counters.bytes_in // _WATCHED
        self._each = each + self._counters.bytes_out // _WATCHED
        self._small = self._each <= _SMALL_BYTES
        if self._small:
            return
        free, _ = accelerator.memory_bytes()
        free = int(0.8 * free)
        if not self._fits:
            self._window = max(1, min(self._window, free // max(3 * each, 1)))
        self._has_room = self._has_room and self._window * (3 * each + _STREAM_BYTES) <= free

    def _candidates(self) -> list[str]:
        if not self._open:
            return [self._strategy]
        overlaps = self._window > 1 and self._has_room and not self._stateful
        return ["plain"] * self._small + ["engines"] + ["streams"] * overlaps

    def _try(self, trial: Trial, flight: Flight[Result]) -> None:
        known = trial.ended(flight.number, flight.end)
        self._item_ns = trial.item_ns
        if trial.over:
            self._trial = None
            if self._open:
                self._decide(trial)
        elif not self._open:
            return
        elif known == "engines" and self._copying_ns() >= _BOUND * trial.item_ns[known]:
            self._trial = None
            self._choose("engines", "copying takes all the time, whatever the strategy")
        elif flight.strategy == "plain":
            behind = self._flights[-2] if len(self._flights) > 1 else flight
            self._idle = self._idle + 1 if behind.end.query() and not self._blocked else 0
            if self._idle == self._window:
                self._trial = None
                self._choose("plain", "the host takes the time, whatever the strategy")
                self._alone = self._out != "device" and self._each <= _WAITED_BYTES

    def _copying_ns(self) -> float:
        """Returns the longer of two times in ns: an item's copy in and its copy out. Returns 0 if the times are not
        known yet."""
        copies = [self._spans[place] for place in (0, 2) if place < len(self._spans)]
        return max((milliseconds(*span) * 1e6 for span in copies if span[1].query()), default=0.0)

    def _decide(self, trial: Trial) -> None:
        best = best_of(self._item_ns)
        if len(self._item_ns) == 1:
            self._choose(best, _IN_ORDER if self._stateful else _ONE if self._has_room else _NO_ROOM)
        else:
            self._choose(best, _IN_ORDER if best == "engines" and self._stateful else why(best, self._item_ns))

    def _choose(self, strategy: str, why: str) -> None:
        self._strategy, self._note, self._open = strategy, why, False

    def _wait_for_flights(self) -> None:
        for flight in self._flights:
            flight.end.synchronize()

    def _event_on(self, accelerator: Accelerator, stream: torch.Stream) -> torch.Event:
        event = accelerator.event(timed=True)
        event.record(stream)
        return event
