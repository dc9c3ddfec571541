"""One iteration of `prefetch` over its data loader. Measures the first batches and decides which thread fetches the
others."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from statistics import median
from typing import Literal, NoReturn

import torch
from torch.utils.data import DataLoader

from unstall.errors import UsageError
from unstall.figures import counted
from unstall.fix.batches.fetching import Batches, FetchedBatch, NoRoomAheadError, Room, pins_by_itself
from unstall.fix.batches.in_place import ENDED, InPlace, News
from unstall.fix.batches.measured_batch import MeasuredBatch
from unstall.fix.batches.passes import Passes
from unstall.fix.batches.producer import PATIENCE_S, Producer, ProducerEnded
from unstall.fix.tensors.accelerator import Accelerator
from unstall.fix.tensors.parts import bytes_of
from unstall.fix.tensors.staging import Sender, Sent
from unstall.guest import batch_waits
from unstall.guest.instants import Instant, Span, instant
from unstall.guest.rng import drawn_from, random_states
from unstall.guest.steps import item_handed_on, loop_ended

_Mode = Literal["look", "ahead", "again", "beside", "plain"]

_LOOKED_AT = 3  # batches that the program's own thread fetches first; 2 if the depth is given
_TRIED = 24  # batches fetched ahead before they are compared with the first batches
_AGAIN = 12  # batches then fetched on demand, if fetching ahead seemed slower
_WORTH = 0.02  # share of a batch's time: a smaller gain is not worth fetching ahead
_DEPTH, _DEEP = 2, 4
_FED = "only copies overlap: the loader's own workers fetch ahead"
_SMALL = "a plain loop: batches are small, and copied as they come"
_AT_FIRST = "a plain loop: the loader's own workers fetch ahead"
_STARVED = "a plain loop: the loader's own workers fetch ahead, and the device still waits for them"
_ANOTHER = "another iteration of the loader is under way"
_JITTER = 2.0  # fetches are uneven if the longest takes more than 2 times the median


class Iteration:
    """An iterator over a loader's batches. It yields each batch with the batch's tensors on the device.

    If batches are fetched ahead on another thread, the thread stops when the loader ends, or when the iterator is
    closed or dropped.
    """

    def __init__(
        self,
        passes: Passes,
        loader: Iterable[object],
        accelerator: Accelerator,
        depth: int | Literal["auto"],
    ) -> None:
        self._passes, self._counters, self._loader = passes, passes.counters, loader
        self._accelerator, self._depth = accelerator, depth
        self._room = Room(accelerator)
        self._one_thread = threading.Lock()
        self._producer: Producer | None = None
        self._batches: Batches | None = None
        self._batches = Batches(loader, accelerator, self._sender(), self._room)
        # If the loader fetches ahead by itself, the device's waits decide the mode, and there is no trial.
        self._follows_loader = self._batches.pinned_by_loader and depth == "auto"
        self._place = InPlace(
            accelerator,
            self._counters,
            _held_ready(loader) if self._follows_loader and isinstance(loader, DataLoader) else None,
        )
        self._mode: _Mode = "look"
        self._judged = False
        self._seen: list[MeasuredBatch] = []
        self._intervals: list[Span] = []  # between batches in this mode
        self._entered: Instant | None = None
        self._rng_beside: set[str] = set()  # generators that the program uses between batches
        self._states: dict[str, object] = {}
        self._given: int | None = None  # size in bytes of the batch that the program holds
        self._held = _why_beside(loader, depth)
        passes.begin(self)
        if self._follows_loader:
            # Another thread, or more work in this one, would take the GIL from the pinning thread.
            # So this is a plain loop as long as the device waits for the loader.
            self._change(*("beside", _FED) if self._place.is_fed() else ("plain", _AT_FIRST))

    def __iter__(self) -> Iteration:
        return self

    def __repr__(self) -> str:
        if self._batches is None:
            return "<iteration of a prefetch: ended>"
        ready = f"{counted(self._producer.ready(), 'batch')} ready, " if self._producer is not None else ""
        return f"<iteration of a prefetch: {ready}{self._passes.stats().note}>"

    def __next__(self) -> object:
        if not self._one_thread.acquire(blocking=False):
            raise UsageError(
                "two threads ask the same iterator of a prefetch for a batch at the same time. Take the batches in one "
                "thread and pass them on, or give each thread its own loader and its own prefetch"
            )
        try:
            return self._next()
        except StopIteration:
            loop_ended(self._loader)
            raise
        finally:
            self._one_thread.release()

    def _next(self) -> object:
        if self._batches is None:
            raise StopIteration
        if self._mode == "plain":
            return self._in_place(instant())
        current = self._accelerator.current()
        asked = self._accelerator.event()
        asked.record(current)
        entered = instant()
        if self._entered is not None:
            self._intervals.append(Span(self._entered, entered))
            self._count_interval(self._intervals[-1])
        self._entered = entered
        states = random_states() if self._states else None
        if states is not None:
            self._rng_beside |= drawn_from(self._states, states)
        if self._given is not None:  # all work on that batch is before `asked` on the program's stream
            self._room.handed_out(asked, self._given)
            self._given = None
        if self._chosen() == "plain":  # from this batch on
            return self._in_place(entered)
        batch, sent = self._next_batch(states)
        if sent.exposed:  # the program may write to the source next
            sent.late.synchronize()
        needed = None if sent.has_ended() else self._accelerator.event(timed=True)
        if needed is not None:
            needed.record(current)
        sent.hand_over(current)
        self._given = sent.bytes
        self._count(batch, sent, entered)
        if self._follows_loader:
            self._place.note_dry(asked)
        self._counters.note_copy(needed, sent.start, sent.end)
        self._states = batch.random if self._mode == "look" else {}
        item_handed_on(self._loader)
        return sent.value

    def close(self, patience_s: float | None = PATIENCE_S) -> None:
        producer, self._producer = self._producer, None
        self._batches = None
        if producer is not None and not producer.close(patience_s):
            self._passes.leave(producer)

    def step_aside(self) -> None:
        """Stops fetching ahead. From now on, the program's own thread fetches the batches after those that have already
        been fetched.

        This is called when another iteration over the same loader begins, because two threads must not use the loader
        at the same time.
        """
        if self._producer is not None or (self._batches is not None and self._batches.watch_rng):
            self._held = self._held or _ANOTHER
        if self._producer is not None:
            self._producer.close(patience_s=None)

    def is_open(self) -> bool:
        return self._batches is not None

    def __del__(self) -> None:
        self.close()

    def _sender(self) -> Sender:
        """Returns the `Sender` of an earlier iteration, because it has learned whether the loader reuses the memory of
        batches. Returns a new `Sender` if another iteration has not ended, or if no earlier iteration used this
        device."""
        kept, loader = self._passes.sender, self._loader
        others = self._passes.others_are_open(self)
        if kept is not None and kept.accelerator is self._accelerator and not others:
            return kept
        refills = type(loader) not in (list, tuple) and not pins_by_itself(loader)
        deepest = _DEEP if self._depth == "auto" else self._depth
        sender = Sender(self._accelerator, deepest + 1, refills=refills)
        if not others:
            self._passes.sender = sender
        return sender

    def _next_batch(self, states: dict[str, object] | None) -> tuple[FetchedBatch, Sent[object]]:
        assert self._batches is not None
        try:
            batch = self._from_producer() if self._producer is not None else None
            if batch is None:
                batch = self._batches.next(states)
            sent, batch.sent = batch.sent or self._batches.send(batch.value), None
            if self._mode == "look":
                largest = max(map(bytes_of, sent.tensors), default=0)
                self._seen.append(MeasuredBatch(batch, sent.pinned, sent.bytes, largest, sent.start, sent.end))
            return batch, sent
        except BaseException as error:
            if self._producer is None:  # nothing is ahead: the loader's own state is right
                self._passes.state = None
            if isinstance(error, StopIteration):
                self._note_if_short()
                self.close()
            raise

    def _from_producer(self) -> FetchedBatch | None:
        """Returns the next batch that the producer's thread fetched. Returns None if the thread stopped before the
        loader's last batch."""
        assert self._producer is not None
        made = batch_waits.waited_for(self._taken)
        if isinstance(made, FetchedBatch):
            if made.rng_used - self._rng_beside and self._held is None:
                names = " and ".join(sorted(made.rng_used))
                self._held = f"fetching batch {self._counters.batches + 1} used {names}'s global random generator"
            return made
        self._end_producer()
        if isinstance(made, ProducerEnded):
            if not isinstance(made.error, NoRoomAheadError):
                _raise(made)
            self._change("beside", "memory ran out with batches ahead: only copies overlap")
        return None

    def _taken(self) -> object:
        """Waits for the next result of the producer's thread, and returns this result."""
        assert self._producer is not None
        made = self._producer.take()
        if isinstance(made, FetchedBatch) and made.sent is not None:
            made.sent.has_ended()  # on a virtual GPU, a thread waits for another one at an event of that
        return made

    def _end_producer(self) -> None:
        assert self._producer is not None
        self._producer.close(patience_s=None)
        self._producer = None
        if self._batches is not None:
            self._batches.ahead = False
        if self._mode == "ahead":
            self._change("beside")

    def _chosen(self) -> _Mode:
        """Chooses the mode in which the next batches are fetched, and returns the mode."""
        if self._mode == "look":
            enough = _LOOKED_AT if self._depth == "auto" and not self._passes.depth else 2
            if self._depth != "auto" and self._batches is not None and not self._batches.watch_rng:
                enough = 0
            if self._place.in_haste and len(self._seen) == 1 and enough == _LOOKED_AT and self._seen[0].is_at_hand():
                self._change("plain", _SMALL)
            elif len(self._seen) >= enough:
                self._decide()
        elif self._mode == "ahead":
            if self._held is not None:
                self._stop_ahead("beside", self._held)
            elif self._depth == "auto" and not self._judged and len(self._intervals) >= _TRIED + 2:
                self._judged = True
                if self._slower():
                    self._stop_ahead("again", "fetching ahead seemed slower: measuring again")
        elif self._mode == "beside" and self._follows_loader and self._place.is_starved():
            self._change("plain", _STARVED)
        elif self._mode == "again" and self._producer is None and len(self._intervals) >= _AGAIN:
            if self._held is not None or self._slower():
                self._change("beside", self._held or "fetching ahead was slower: only copies overlap")
            else:
                self._go_ahead(self._passes.depth or _DEPTH)
        return self._mode

    def _decide(self) -> None:
        assert self._batches is not None
        later = self._seen[1:]  # the first fetch sets up the sampler, which may use a generator
        drawn: set[str] = set().union(*(seen.batch.rng_used for seen in later))
        if drawn and self._held is None:
            names = " and ".join(sorted(drawn))
            self._held = (
                f"fetching uses {names}'s global random generator: ahead, it would use it at another time "
                "(workers, or a generator of the data set's own, do not)"
            )
        if any(seen.batch.on_device for seen in self._seen) and self._held is None:
            self._held = "the loader makes tensors on the device itself"
        others = self._passes.others_are_open(self)
        if others and self._batches.watch_rng and self._held is None:
            self._held = _ANOTHER
        if self._held is not None:
            self._change("beside", f"fetched by the program's own thread, copies overlap: {self._held}")
            return
        if self._depth == 0:
            self._change("beside", "fetched by the program's own thread, copies overlap: depth=0")
            return
        if self._depth != "auto":
            self._go_ahead(self._depth)
            return
        fetch = median(seen.batch.fetching.ns for seen in later)
        interval = min((span.ns for span in self._intervals[1:]), default=0)
        if all(seen.is_small() for seen in later) and fetch < _WORTH * interval:
            self._change("plain", _SMALL)
            return
        hideable = fetch + median(seen.stage_and_copy_ns() for seen in later)
        if hideable < _WORTH * interval:
            part = hideable / interval
            self._change("beside", f"nothing fetched ahead: fetching and copying are {part:.1%} of a batch's time")
            return
        uneven = max(seen.batch.fetching.ns for seen in later) > _JITTER * fetch
        fitting = self._room.fitting(max(seen.bytes for seen in later))
        if fitting == 0:
            self._change("beside", "nothing fetched ahead: a batch more takes too much of the memory that is left")
            return
        self._go_ahead(min(fitting, _DEEP if uneven else _DEPTH))

    def _go_ahead(self, depth: int) -> None:
        assert self._batches is not None
        self._seen = []
        self._change("ahead", "fetched ahead by a thread", depth)
        self._batches.ahead = True
        self._producer = Producer(self._batches.next, depth, self._accelerator.enter)

    def _stop_ahead(self, mode: Literal["again", "beside"], why: str) -> None:
        """Stops the producer's thread from fetching more batches. Batches that the thread has already fetched are
        yielded first."""
        assert self._producer is not None
        self._producer.stop()
        self._change(mode, why)

    def _change(self, mode: _Mode, why: str | None = None, depth: int = 0) -> None:
        self._mode, self._intervals, self._seen = mode, [], []
        self._states = {}  # RNG use is compared only between the first, measured batches
        if mode == "plain":
            self._entered = None  # the time between such batches is not measured
        if mode == "beside" and self._producer is None and self._batches is not None:
            self._batches.watch_rng = False
        if why is not None:
            self._passes.fetch_ahead(depth, why)

    def _slower(self) -> bool:
        beside, ahead = self._counters.beside[-_AGAIN:], self._counters.ahead[-_TRIED:]
        if not beside or not ahead:
            return False
        return median(span.ns for span in ahead) > (1 + _WORTH) * median(span.ns for span in beside)

    def _count_interval(self, interval: Span) -> None:
        if len(self._intervals) < 2:  # the first interval after a change of mode belongs to both modes
            return
        kept = self._counters.ahead if self._mode == "ahead" else self._counters.beside
        if self._mode == "again" and self._producer is not None:
            return
        kept.append(interval)
        del kept[:-_TRIED]

    def _count(self, batch: FetchedBatch, sent: Sent[object], entered: Instant) -> None:
        counters = self._counters
        counters.batches += 1
        counters.bytes += sent.bytes
        counters.tensors += len(sent.tensors) + len(sent.there)
        if not sent.tensors and not sent.there:
            counters.empty = type(sent.value).__name__
        counters.fetching.add(batch.fetching)
        counters.staging.add(batch.staging)
        counters.waiting.add(Span(entered, instant()))
        self._passes.state = batch.state

    def _note_if_short(self) -> None:
        if self._mode == "look" and not self._passes.depth:
            self._passes.fetch_ahead(0, "too few batches to fetch ahead: only copies overlapped")

    def _in_place(self, entered: Instant) -> object:
        place, batches = self._place, self._batches
        assert batches is not None
        self._passes.state = None  # until the program has the batch, the loader's own state is right
        value = place.batch(batches, entered)
        if value is ENDED:
            self.close()
            raise StopIteration
        if place.news is not None:
            self._heed(place.news)
            place.news = None
        if batches.has_state:
            self._passes.state = batches.state()
        item_handed_on(self._loader)
        return value

    def _heed(self, news: News) -> None:
        if news == "fed":
            self._change("beside", _FED)
        elif news == "starved":
            self._passes.fetch_ahead(0, _STARVED)
        else:
            self._change("look", "batches are being measured")


def _raise(ended: ProducerEnded) -> NoReturn:
    """Raises the error that ended the producer's thread. Removes references to the error from the frames of its
    traceback, because these references would form cycles."""
    error, ended.error = ended.error, StopIteration()
    try:
        raise error
    finally:
        del error


def _held_ready(loader: DataLoader[object]) -> int:
    """Returns how many batches the loader's workers may have ready before the program asks for the first batch. The
    result is at most half of all batches, because even a short loop must have batches to measure."""
    ready = int(loader.num_workers * (getattr(loader, "prefetch_factor", None) or 1))
    try:
        return min(ready, len(loader) // 2)
    except TypeError:  # the data set has no length
        return ready


def _why_beside(loader: object, depth: int | Literal["auto"]) -> str | None:
    """If fetching on another thread could change the program's results, returns the reason. Otherwise, returns None."""
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return "a torch mode is on in the program's thread"
    if depth == "auto" and isinstance(loader, DataLoader) and loader.num_workers == 0:
        for part in ("batch_sampler", "sampler", "dataset"):
            if hasattr(getattr(loader, part, None), "state_dict") and not hasattr(loader, "state_dict"):
                return (
                    f"the program may read the state of the loader's {part} (if you give a depth, it is that far ahead)"
                )
    return None
