"""One pass of a prefetch over its loader: which thread fetches, for how long, and what it measures meanwhile."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch

from unstall.fix.accelerator import Accelerator
from unstall.fix.batches import Batch, Batches, Room, pins_by_itself
from unstall.fix.nesting import map_tensors
from unstall.fix.prefetch_stats import Tally
from unstall.fix.producer import PATIENCE_S, Ended, Producer
from unstall.fix.random_state import drawn_from, random_states
from unstall.fix.staging import Sender

if TYPE_CHECKING:
    from unstall.fix.prefetch import Prefetch

_LOOKED_AT = 3  # batches that the program's own thread fetches first; 2 where the depth is given
_TRIED = 24  # batches ahead, before they are held against those
_AGAIN = 12  # batches that are not, where those ahead seemed slower
_WORTH = 0.02
_DEPTH, _DEEP = 2, 4
_SMALL_BYTES = 64 << 10  # up to which the driver takes what is not pinned along with the call, and nobody waits
_STEADY = 4  # batches in a row that tell the same of the device; and of a plain loop every so many are looked at
_FED = "copies overlap alone: the loader's own workers fetch ahead"
_STARVED = "a plain loop: the loader's own workers fetch ahead, and the device waits for them all the same"
_JITTER = 2.0  # of fetches: the longest over the median


class Iteration:
    """An iterator over batches on the device. Closing it, dropping it or reaching its end stops its thread."""

    def __init__(
        self,
        owner: Prefetch,
        loader: Any,
        accelerator: Accelerator,
        depth: int | Literal["auto"],
        tally: Tally,
    ) -> None:
        self._owner, self._accelerator, self._tally = owner, accelerator, tally
        self._depth = depth
        deepest = _DEEP if depth == "auto" else depth
        self._room = Room(accelerator)
        if owner._sender is None or owner._sender.accelerator is not accelerator:
            refills = type(loader) not in (list, tuple) and not pins_by_itself(loader)
            owner._sender = Sender(accelerator, deepest + 1, refills=refills)
        self._batches: Batches | None = Batches(loader, accelerator, owner._sender, self._room)
        self._producer: Producer | None = None
        self._mode: Literal["look", "ahead", "again", "beside", "plain"] = "look"
        self._judged = False
        self._seen: list[Batch] = []
        self._intervals: list[int] = []  # in this mode
        self._entered: int | None = None
        self._drawn_beside: set[str] = set()  # generators that the program draws from between batches
        self._states: dict[str, Any] = {}
        self._given: int | None = None  # bytes of the batch that the program has
        self._dry = 0  # batches in a row for which the device was waiting when they came; below 0: was not
        self._held = _why_beside()
        owner._settled = owner._settled or (0, "the first batches are being measured")
        if self._follows_loader():
            # A thread more would only take the interpreter's lock from the one that pins, and so does all else here:
            # as long as the device waits for the loader, nothing is done but what the loop would do by itself.
            self._change("plain", _STARVED)

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        if self._batches is None:
            raise StopIteration
        entered = time.perf_counter_ns()
        if self._entered is not None:
            self._intervals.append(entered - self._entered)
            self._count_interval(entered - self._entered)
        self._entered = entered
        if self._mode == "plain":
            return self._in_place(entered)
        states = random_states() if self._states else None
        if states is not None:
            self._drawn_beside |= drawn_from(self._states, states)
        current = self._accelerator.current()
        asked = self._accelerator.event(timed=True)
        asked.record(current)
        if self._given is not None:  # all that the program did with it is before `asked` on its stream
            self._room.handed_out(asked, self._given)
            self._given = None
        self._choose()
        batch = self._next_batch(states)
        sent = batch.sent
        if sent.exposed:  # the program may write there next
            sent.late.synchronize()
        sent.hand_over(current)
        self._given = sent.bytes
        self._count(batch, entered)
        self._note_dry(asked)
        self._tally.note_copy(asked, sent.start, sent.end)
        self._states = batch.random if self._mode == "look" else {}
        return sent.value

    def close(self, patience_s: float | None = PATIENCE_S) -> None:
        producer, self._producer = self._producer, None
        self._batches = None
        if producer is not None and not producer.close(patience_s):
            self._owner._left = producer

    def __del__(self) -> None:
        self.close()

    def _next_batch(self, states: dict[str, Any] | None) -> Batch:
        assert self._batches is not None
        try:
            if self._producer is not None:
                made = self._producer.take()
                if isinstance(made, Ended):
                    self._end_producer()
                    _raise(made)
                if made is not None:
                    if made.drawn - self._drawn_beside and self._held is None:
                        names = " and ".join(sorted(made.drawn))
                        self._held = f"fetching batch {self._tally.batches + 1} drew from {names}'s global generator"
                    return made  # type: ignore[no-any-return]
                self._end_producer()
            batch = self._batches.next(states)
            if self._mode == "look":
                self._seen.append(batch)
            return batch
        except StopIteration:
            self._settle_short()
            self.close()
            raise

    def _end_producer(self) -> None:
        assert self._producer is not None
        self._producer.close(patience_s=None)
        self._producer = None
        if self._batches is not None:
            self._batches.ahead = False
        if self._mode == "ahead":
            self._change("beside")

    def _choose(self) -> None:
        """Which thread fetches from here on."""
        if self._mode == "look":
            enough = _LOOKED_AT if self._depth == "auto" and not self._owner_depth() else 2
            if self._depth != "auto" and self._batches is not None and not self._batches.watch_draws:
                enough = 0
            if len(self._seen) >= enough:
                self._decide()
        elif self._mode == "ahead":
            if self._held is not None:
                self._stop_ahead("beside", self._held)
            elif self._depth == "auto" and not self._judged and len(self._intervals) >= _TRIED + 2:
                self._judged = True
                if self._slower():
                    self._stop_ahead("again", "fetching ahead seemed slower: measuring again")
        elif self._mode == "beside" and self._follows_loader() and self._dry >= _STEADY:
            self._change("plain", _STARVED)
        elif self._mode == "again" and self._producer is None and len(self._intervals) >= _AGAIN:
            if self._slower():
                self._change("beside", "fetching ahead was slower: copies overlap alone")
            else:
                self._go_ahead(self._owner_depth() or _DEPTH, "fetched ahead by a thread")

    def _decide(self) -> None:
        assert self._batches is not None
        later = self._seen[1:]  # the first sets up the sampler, and may draw for it
        drawn: set[str] = set().union(*(batch.drawn for batch in later))
        if drawn and self._held is None:
            names = " and ".join(sorted(drawn))
            self._held = (
                f"fetching draws from {names}'s global generator: ahead, it would draw at another time "
                "(workers, or a generator of the data set's own, leave it free)"
            )
        if any(batch.on_device for batch in self._seen) and self._held is None:
            self._held = "the loader makes tensors on the device itself"
        if self._held is not None:
            self._change("beside", f"fetched by the program's own thread, copies overlap: {self._held}")
            return
        if self._depth == 0:
            self._change("beside", "fetched by the program's own thread, copies overlap: depth=0")
            return
        if self._depth != "auto":
            self._go_ahead(self._depth, "fetched ahead by a thread")
            return
        fetch = median(batch.fetch_ns for batch in later)
        interval = min(self._intervals[1:], default=0)
        largest = max((tensor.nbytes for batch in later for tensor in batch.sent.tensors), default=0)
        if largest <= _SMALL_BYTES and fetch < _WORTH * interval and not any(batch.sent.pinned for batch in later):
            self._change("plain", "a plain loop: batches are small, and copied as they come")
            return
        hideable = fetch + median(batch.stage_ns + batch.sent.copy_ns() for batch in later)
        if hideable < _WORTH * interval:
            part = hideable / interval
            self._change("beside", f"nothing fetched ahead: fetching and copying are {part:.1%} of a batch's time")
            return
        uneven = max(batch.fetch_ns for batch in later) > _JITTER * fetch
        self._go_ahead(_DEEP if uneven else _DEPTH, "fetched ahead by a thread")

    def _follows_loader(self) -> bool:
        """Whether it goes by what the device does, and not by trial: where the loader fetches ahead by itself."""
        return self._batches is not None and self._batches.pinned_by_loader and self._depth == "auto"

    def _note_dry(self, asked: Any) -> None:
        """`asked`: what the device had to do when the batch was asked for."""
        self._dry = max(1, self._dry + 1) if asked.query() else min(-1, self._dry - 1)

    def _go_ahead(self, depth: int, why: str) -> None:
        assert self._batches is not None
        self._seen = []
        self._change("ahead", why, depth)
        self._batches.ahead = True
        self._producer = Producer(self._batches.next, depth, self._accelerator.enter)

    def _stop_ahead(self, mode: Literal["again", "beside"], why: str) -> None:
        """What was fetched already comes first."""
        assert self._producer is not None
        self._producer.stop()
        self._change(mode, why)

    def _change(
        self, mode: Literal["look", "ahead", "again", "beside", "plain"], why: str | None = None, depth: int = 0
    ) -> None:
        self._mode, self._intervals, self._seen = mode, [], []
        if mode == "beside" and self._producer is None and self._batches is not None:
            self._batches.watch_draws = False
        if why is not None:
            self._owner._settled = depth, why

    def _owner_depth(self) -> int:
        return self._owner._settled[0] if self._owner._settled else 0

    def _slower(self) -> bool:
        beside, ahead = self._tally.beside_ns, self._tally.ahead_ns
        if not beside or not ahead:
            return False
        return median(ahead[-_TRIED:]) > (1 + _WORTH) * median(beside[-_AGAIN:])

    def _count_interval(self, interval: int) -> None:
        if len(self._intervals) < 2:  # the first after a change of mode is of both
            return
        kept = self._tally.ahead_ns if self._mode == "ahead" else self._tally.beside_ns
        if self._mode == "again" and self._producer is not None:
            return
        kept.append(interval)
        del kept[:-1000]

    def _count(self, batch: Batch, entered: int) -> None:
        tally = self._tally
        tally.batches += 1
        tally.bytes += batch.sent.bytes
        tally.fetch_ns += batch.fetch_ns
        tally.stage_ns += batch.stage_ns
        tally.waited_ns += time.perf_counter_ns() - entered
        self._owner._state = batch.state

    def _settle_short(self) -> None:
        if self._mode == "look" and not self._owner_depth():
            self._owner._settled = 0, "too few batches to fetch ahead: copies overlapped alone"

    def _in_place(self, entered: int) -> Any:
        """As the loop would do it by itself."""
        assert self._batches is not None
        asked = None
        if self._follows_loader() and (self._dry < 0 or self._tally.batches % _STEADY == 0):
            asked = self._accelerator.event()
            asked.record(self._accelerator.current())
        try:
            value, fetch_ns, state = self._batches.fetch()
        except StopIteration:
            self.close()
            raise
        if asked is not None:
            self._note_dry(asked)
            if self._dry <= -2:
                self._change("beside", _FED)
        device, kept = self._accelerator.device, self._batches.pinned_by_loader
        moved = map_tensors(value, lambda tensor: tensor.to(device, non_blocking=kept or not tensor.is_pinned()))
        self._tally.batches += 1
        self._tally.fetch_ns += fetch_ns
        self._tally.waited_ns += time.perf_counter_ns() - entered
        self._owner._state = state
        return moved


def _raise(ended: Ended) -> NoReturn:
    """What the loader raised. No frame of its traceback then has it, which would be a circle."""
    error, ended.error = ended.error, StopIteration()
    try:
        raise error
    finally:
        del error


def _why_beside() -> str | None:
    """What of the calling thread's torch another thread would not have."""
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return "a torch mode is on in the program's thread"
    return None
