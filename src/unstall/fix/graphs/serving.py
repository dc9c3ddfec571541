"""Calls of one function: which graph serves each, and the way from a first call to a graph."""

from __future__ import annotations

import copy
import functools
import operator
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from unstall.errors import GraphedError
from unstall.fix.graphs.accumulate_grad import no_stream_warnings
from unstall.fix.graphs.buckets import LOOKS, Buckets, Padded, Sizes, prove
from unstall.fix.graphs.capture.device import Device, device_for
from unstall.fix.graphs.inside import inside, is_inside
from unstall.fix.graphs.look.examine import examined
from unstall.fix.graphs.look.heard import unheard
from unstall.fix.graphs.look.observe import Observation
from unstall.fix.graphs.look.watch import Watch
from unstall.fix.graphs.prepare import Candidate, Options, prepared
from unstall.fix.graphs.ready import Ready
from unstall.fix.graphs.refusals import Refusal, Refused, calling_place, changing, raising_place
from unstall.fix.graphs.sharing import Sharing
from unstall.fix.graphs.signature import Call, call_of
from unstall.fix.graphs.state import Saved
from unstall.fix.graphs.stats import GraphedStats, Tally
from unstall.fix.graphs.subject import Kind
from unstall.fix.graphs.through_autograd import served_through_autograd
from unstall.fix.graphs.verify import check
from unstall.fix.tensors.nesting import tensors_in
from unstall.guest.step_replay import repeat_boundaries

_VARIANTS = 2  # graphs of one shape for different states, as of a module that is switched between train and eval
_STRIKES = 3  # captures in a row that served next to nothing before what they rely on had changed
_FEW_HITS = 10
_PATIENCE_SECONDS = 0.02
_YET = "it warms up with the first call of all, looks at the first of each shape, and captures at the next"

_turn = threading.RLock()


@dataclass(slots=True)
class _Shelf:
    """What is known of the calls with one key."""

    others: list[Any]  # objects of the key: they stay alive, so that their ids stay theirs
    shapes: tuple[tuple[int, ...], ...]
    seen: Observation | None = None
    watch: Watch | None = None  # of what it was seen to read
    kind: Kind = Kind.PURE
    refusal: Refusal | None = None
    ready: list[Ready] = field(default_factory=list)  # the last used one first
    effects: int = 0  # runs that changed Python-side state, with no call between that a graph served
    doubts: int = 0  # looks in a row that found what may be another thread's doing
    again_at: int = 0  # of the function's calls, the one at which it is looked at again after so many; 0: never
    strikes: int = 0
    spent: bool = False  # what was seen has led to a capture


class Graphed:
    """A function that is served by CUDA graphs where that is proved to be the same, and faster."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        lanes: tuple[int, ...] | None,
        sizes: Sizes | None,
        verify: bool,
        max_graphs: int,
        strict: bool,
        device: Device | None = None,
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._asked = functools.partial(
            Graphed, lanes=lanes, sizes=sizes, verify=verify, max_graphs=max_graphs, strict=strict, device=device
        )
        self._options = Options(lanes, verify)
        self._max_graphs = max_graphs
        self._strict = strict
        self._device = device
        self._pools: list[Any] = []
        self._shelves: OrderedDict[Any, _Shelf] = OrderedDict()
        self._tally = Tally()
        self._warm = False
        self._buckets = Buckets(sizes) if sizes is not None else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Memory of graphs is shared, so one call is answered at a time. One that runs as it is does so outside of
        # that, and nothing waits for long: a function that is looked at may itself wait for another thread's call.
        if not is_inside() and _turn.acquire(timeout=_PATIENCE_SECONDS):
            try:
                done, result = self._answered(args, kwargs)
            finally:
                _turn.release()
            if done:
                return result
        return self._function(*args, **kwargs)

    def _answered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        self._tally.calls += 1
        device = self._device = self._device or device_for(tensors_in((args, kwargs)))
        if device is None or device.capturing():  # the program captures a graph of its own
            return False, None
        try:
            call = call_of(args, kwargs)
        except Refused as refused:
            self._note(refused.refusals[0])
            return False, None
        padded = self._buckets.padded(call, args, kwargs) if self._buckets is not None else None
        if padded is not None:
            return self._in_a_bucket(device, padded, call, args, kwargs)
        return self._serve(device, call, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: what it is bound to is an argument, and has graphs of its own."""
        return self if instance is None else Bound(self, instance)

    def __repr__(self) -> str:
        return f"graphed({getattr(self._function, '__qualname__', type(self._function).__name__)})"

    def anew(self, function: Callable[..., Any]) -> Graphed:
        """Another function, with the same options and graphs of its own."""
        return self._asked(function)

    def __copy__(self) -> Graphed:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Graphed:
        """A function is its own copy, and a method is that of what it is bound to."""
        function = copy.deepcopy(self._function, memo)
        return self if function is self._function else self.anew(function)

    def __reduce__(self) -> Any:
        """Saved, it is the name that leads to it; where none does, the function that it was made of."""
        name = str(getattr(self, "__qualname__", ""))
        try:
            if operator.attrgetter(name)(sys.modules[self.__module__]) is self:
                return name
        except (AttributeError, KeyError):
            pass
        return operator.getitem, ([self._function], 0)

    def stats(self) -> GraphedStats:
        """What it did so far."""
        tally = self._tally
        graphs = tuple(ready.stats(shelf.shapes) for shelf in self._shelves.values() for ready in shelf.ready)
        note = ""
        if tally.calls and self._device is None:
            note = "no CUDA device: it runs as it is"
        elif tally.calls and not graphs and not tally.refusals:
            note = _YET + (f"; {self._buckets.progress()}" if self._buckets is not None else "")
        return GraphedStats(
            tally.calls,
            tally.hits,
            tally.captures,
            tally.evictions,
            graphs,
            tuple(tally.refusals),
            tally.padded / tally.worked_on if tally.worked_on else 0.0,
            sum(map(self._device.pool_bytes, self._pools)) if self._device is not None else 0,
            tally.launches_saved,
            tally.seconds_saved,
            note,
        )

    def _serve(self, device: Device, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """Whether the call was served, or run and looked at, and its result; else it is yet to be run."""
        shelf = self._shelf(call)
        if shelf.refusal is None and shelf.ready:
            if not shelf.ready[0].sharing.is_safe(call.tensors):
                return False, None
            for ready in list(shelf.ready):
                served, result = self._try(shelf, ready, call)
                if served:
                    return True, result
            if shelf.ready and shelf.spent and not any(ready.busy for ready in shelf.ready):
                self._outlived(shelf)
        if shelf.refusal is not None:
            if 0 < shelf.again_at <= self._tally.calls:
                return True, self._observe(device, shelf, call, args, kwargs)
            if self._strict:
                self._note(shelf.refusal)
            return False, None
        if any(ready.busy for ready in shelf.ready):
            return False, None
        if shelf.seen is None:
            return True, self._observe(device, shelf, call, args, kwargs)
        return self._capture(device, shelf, call, args, kwargs)

    def _try(self, shelf: _Shelf, ready: Ready, call: Call) -> tuple[bool, Any]:
        """Whether this graph served the call, and the result."""
        if ready.busy:
            return False, None
        # While it is looked at the device works: on the inputs, and on the result where that can be thrown away.
        ready.fill(call.tensors)
        if ready.pure and not ready.checks_left:
            result = ready.served(call.tensors)
            if not ready.holds():
                ready.hits -= 1
                return False, None
        else:
            if not ready.holds():
                return False, None
            if ready.checks_left and self._options.verify:
                if not self._checked(shelf, ready, call):
                    return False, None
                ready.fill(call.tensors)  # which was filled with others
            ready.checks_left = 0
            if ready.subject.kind is Kind.DIFFERENTIABLE:
                result = served_through_autograd(ready, call.tensors)
            else:
                result = ready.served(call.tensors)
        if shelf.ready[0] is not ready:
            shelf.ready.remove(ready)
            shelf.ready.insert(0, ready)
        shelf.effects = 0
        tally = self._tally
        tally.hits += 1
        tally.launches_saved += ready.launches
        tally.seconds_saved += ready.saves_seconds
        repeat_boundaries(ready.subject.seen.steps)
        return True, result

    def _checked(self, shelf: _Shelf, ready: Ready, call: Call) -> bool:
        """Whether a graph gives what eager gives for the program's own next inputs. The state is left as it was."""
        saved: Saved = ready.subject.saved()
        try:
            with inside(), unheard():
                check(ready.subject, ready.captured, call.tensors, saved)
        except Refused as refused:
            self._refuse(shelf, refused.refusals[0])
            return False
        finally:
            saved.restore()
        return True

    def _outlived(self, shelf: _Shelf) -> None:
        """None of the graphs relies on what is so now: another one may be captured."""
        newest = shelf.ready[0]
        shelf.strikes = shelf.strikes + 1 if newest.hits < _FEW_HITS else 0
        if shelf.strikes >= _STRIKES:
            broken = newest.broken() or ["a tensor that it reads"]
            self._refuse(shelf, changing(broken[0]))
            return
        shelf.seen, shelf.spent = None, False
        del shelf.ready[_VARIANTS - 1 :]

    def _observe(self, device: Device, shelf: _Shelf, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call as it is and looks on. Of the very first call nothing is kept: it makes what later ones find
        made."""
        found = examined(device, self._function, call, args, kwargs)
        if not self._warm:
            self._warm = True
            return found.result
        doubted, shelf.refusal, shelf.again_at = shelf.refusal, None, 0
        for refusal in found.seen.refusals:
            self._note(refusal)
        if found.seen.refusals:
            shelf.refusal = found.seen.refusals[0]
            return found.result
        shelf.effects = shelf.effects + 1 if found.changed else 0
        if shelf.effects > 1:  # the first time may fill a cache
            reason = f"it changes the program's own state at each call, and a graph would not: {found.changed[0]}"
            self._refuse(shelf, Refusal(reason, None, "do that outside, or write into a tensor"))
        shelf.doubts = shelf.doubts + 1 if found.seen.doubts else 0
        if not shelf.doubts and doubted in self._tally.refusals:
            self._tally.refusals.remove(doubted)
        if shelf.doubts >= LOOKS:
            shelf.again_at = 2 * self._tally.calls
            self._refuse(shelf, found.seen.doubts[0])
        shelf.kind, shelf.watch = found.kind, found.watch
        shelf.seen = None if found.changed or found.seen.doubts else found.seen
        return found.result

    def _capture(
        self, device: Device, shelf: _Shelf, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bool, Any]:
        assert shelf.seen is not None
        assert shelf.watch is not None
        changed = [] if shelf.watch.unchanged() else shelf.watch.changes(first=True)
        if shelf.kind is Kind.STEP and shelf.seen.concerns_grads() and not shelf.seen.grads_as_seen():
            changed.append("gradients that it reads are other tensors")
        if changed:
            shelf.strikes += 1
            if shelf.strikes >= _STRIKES:
                self._refuse(shelf, changing(changed[0]))
                return False, None
            return True, self._observe(device, shelf, call, args, kwargs)
        if not Sharing(shelf.seen).is_safe(call.tensors):
            reason = "it writes into an argument that shares memory with another, or with what it reads"
            self._refuse(shelf, Refusal(reason, None, "pass a clone"))
            return False, None
        candidate = Candidate(self._function, args, kwargs, call.tensors, shelf.watch, shelf.seen, shelf.kind)
        try:
            with inside(), unheard(), no_stream_warnings():
                ready = prepared(device, self._pool_for(device, shelf.kind), candidate, self._options)
        except Refused as refused:
            self._refuse(shelf, refused.refusals[0])
            return False, None
        except Exception as error:
            reason = f"it could not be captured: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            self._refuse(shelf, Refusal(reason, raising_place(error)), error)
            return False, None
        self._tally.captures += 1
        shelf.spent = True
        shelf.ready.insert(0, ready)
        self._evict(shelf)
        ready.checks_left = 0
        served, result = self._try(shelf, ready, call)
        ready.checks_left = 1
        return served, result

    def _pool_for(self, device: Device, kind: Kind) -> Any:
        """One for all graphs whose results are copied before another replay; apart is what autograd keeps, and the
        gradients that a step leaves."""
        pool = device.shared_pool() if kind is Kind.PURE else device.new_pool()
        if pool not in self._pools:
            self._pools.append(pool)
        return pool

    def _shelf(self, call: Call) -> _Shelf:
        shelf = self._shelves.get(call.key)
        if shelf is None:
            shelf = self._shelves[call.key] = _Shelf(call.others, tuple(tuple(t.shape) for t in call.tensors))
            if call.others:  # which are kept alive: not for long where each call brings new ones
                idle = [key for key, each in self._shelves.items() if each.others and not each.ready]
                for key in idle[: -self._max_graphs]:
                    del self._shelves[key]
            while len(self._shelves) > 16 * self._max_graphs:
                self._shelves.popitem(last=False)
        self._shelves.move_to_end(call.key)
        return shelf

    def _evict(self, newest: _Shelf) -> None:
        count = sum(len(shelf.ready) for shelf in self._shelves.values())
        for shelf in self._shelves.values():  # the one used longest ago first
            while count > self._max_graphs and shelf.ready and not (shelf is newest and len(shelf.ready) == 1):
                shelf.ready.pop()
                shelf.seen, shelf.spent = None, False
                self._tally.evictions += 1
                count -= 1

    def _refuse(self, shelf: _Shelf, refusal: Refusal, cause: Exception | None = None) -> None:
        shelf.refusal = refusal
        shelf.ready.clear()
        self._note(refusal, cause)

    def _note(self, refusal: Refusal, cause: Exception | None = None) -> None:
        """Says why, once for each reason; raises with strict=True, each time, unless a graph could be."""
        known = refusal in self._tally.refusals
        if not known:
            self._tally.refusals.append(refusal)
        if self._strict and not refusal.gainless:
            raise GraphedError(f"{self!r} runs as it is: {refusal}") from cause
        if not known:
            caller = calling_place()
            file, line = (caller.file, caller.line) if caller else ("<unknown>", 1)
            warnings.warn_explicit(f"{self!r} runs as it is: {refusal}", RuntimeWarning, file, line)

    def _in_a_bucket(
        self, device: Device, padded: Padded, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bool, Any]:
        if not padded.proved:
            return True, self._prove(device, padded, call, args, kwargs)
        self._tally.padded += padded.padding
        self._tally.worked_on += padded.elements
        done, result = self._serve(device, padded.call, padded.args, padded.kwargs)
        return done, padded.cut(result) if done else None

    def _prove(self, device: Device, padded: Padded, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call as it is and, where that changes nothing, in its bucket; gives the result of the former."""
        found = examined(device, self._function, call, args, kwargs)
        trial_args, trial_kwargs = padded.trial()
        try:
            with device.side(), inside(), unheard():
                prove(padded, found, lambda: self._function(*trial_args, **trial_kwargs))
        except Refused as refused:
            self._note(refused.refusals[0])
        return found.result


class Bound(functools.partial[Any]):
    """A graphed method of an object, called in C as a partial is."""

    __slots__ = ()

    def stats(self) -> GraphedStats:
        """Of all objects that have the method."""
        graphed: Graphed = self.func  # type: ignore[assignment]
        return graphed.stats()
