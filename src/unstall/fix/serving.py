"""Calls of one function: which graph serves each, and the way from a first call to a graph."""

from __future__ import annotations

import functools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from unstall.fix.buckets import Buckets, Padded, Sizes, prove
from unstall.fix.device import Device, device_for
from unstall.fix.graph_stats import GraphedStats, Tally
from unstall.fix.nesting import map_tensors, tensors_in
from unstall.fix.observe import Observation, observed
from unstall.fix.prepare import Candidate, Options, prepared
from unstall.fix.ready import Ready
from unstall.fix.refusals import GraphedError, Refusal, Refused, calling_place, raising_place
from unstall.fix.signature import Call, call_of
from unstall.fix.state import Saved
from unstall.fix.subject import Kind, differentiable, without_autocast_cache
from unstall.fix.through_autograd import served_through_autograd
from unstall.fix.verify import check
from unstall.fix.watch import Watch

_VARIANTS = 2  # graphs of one shape for different states, as of a module that is switched between train and eval
_STRIKES = 3  # captures in a row that served next to nothing before what they rely on had changed
_FEW_HITS = 10


@dataclass(slots=True)
class _Shelf:
    """What is known of the calls with one key."""

    others: list[Any]  # objects of the key: they stay alive, so that their ids stay theirs
    shapes: tuple[tuple[int, ...], ...]
    seen: Observation | None = None
    kind: Kind = Kind.PURE
    refusal: Refusal | None = None
    ready: list[Ready] = field(default_factory=list)  # the last used one first
    effects: int = 0  # runs in a row that changed Python-side state
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
        self._options = Options(lanes, verify)
        self._max_graphs = max_graphs
        self._strict = strict
        self._device = device
        self._pools: list[Any] = []
        self._shelves: OrderedDict[Any, _Shelf] = OrderedDict()
        self._tally = Tally()
        self._warm = False
        self._lock = threading.RLock()
        self._buckets = Buckets(sizes) if sizes is not None else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _elsewhere():
            return self._function(*args, **kwargs)
        with self._lock:
            self._tally.calls += 1
            if self._device is None:
                found = device_for(tensors_in((args, kwargs)))
                if found is None:
                    return self._function(*args, **kwargs)
                self._device = found
            if self._device.capturing():  # the program captures a graph of its own
                return self._function(*args, **kwargs)
            try:
                call = call_of(args, kwargs)
            except Refused as refused:
                self._note(refused.refusals[0])
                return self._function(*args, **kwargs)
            if self._buckets is not None:
                padded = self._buckets.padded(call, args, kwargs)
                if padded is not None:
                    return self._in_a_bucket(padded, call, args, kwargs)
            return self._serve(call, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: what it is bound to is an argument, and has graphs of its own."""
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"graphed({getattr(self._function, '__qualname__', repr(self._function))})"

    def stats(self) -> GraphedStats:
        """What it did so far."""
        tally = self._tally
        graphs = tuple(ready.stats(shelf.shapes) for shelf in self._shelves.values() for ready in shelf.ready)
        note = "no CUDA device: it runs as it is" if tally.calls and self._device is None else ""
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

    def _serve(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        shelf = self._shelf(call)
        if shelf.refusal is None:
            for ready in list(shelf.ready):
                served, result = self._try(shelf, ready, call, args, kwargs)
                if served:
                    return result
            if shelf.ready and shelf.spent and not any(ready.busy for ready in shelf.ready):
                self._outlived(shelf)
        if shelf.refusal is not None or any(ready.busy for ready in shelf.ready):
            return self._function(*args, **kwargs)
        if shelf.seen is None:
            return self._observe(shelf, call, args, kwargs)
        return self._capture(shelf, call, args, kwargs)

    def _try(
        self, shelf: _Shelf, ready: Ready, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bool, Any]:
        """Whether this graph served the call, and the result."""
        if ready.busy:
            return False, None
        if ready.pure and not ready.checks_left:
            # It may be asked for nothing: then what it gave is thrown away. The device works while it is looked at.
            result = ready.served(call.tensors)
            if not ready.holds():
                ready.hits -= 1
                return False, None
        else:
            if not ready.holds():
                return False, None
            if ready.checks_left and self._options.verify and not self._checked(shelf, ready, call):
                return False, None
            ready.checks_left = 0
            if ready.subject.kind is Kind.DIFFERENTIABLE:
                result = served_through_autograd(ready, call.tensors)
            else:
                result = ready.served(call.tensors)
        if shelf.ready[0] is not ready:
            shelf.ready.remove(ready)
            shelf.ready.insert(0, ready)
        tally = self._tally
        tally.hits += 1
        tally.launches_saved += ready.launches
        tally.seconds_saved += ready.saves_seconds
        return True, result

    def _checked(self, shelf: _Shelf, ready: Ready, call: Call) -> bool:
        """Whether a graph gives what eager gives for the program's own next inputs. The state is left as it was."""
        saved: Saved = ready.subject.saved()
        try:
            with _inside():
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
            reason = f"what it relies on changes between calls: {broken[0]}"
            self._refuse(shelf, Refusal(reason, None, "pass it in as a tensor, or write into the same one"))
            return
        shelf.seen, shelf.spent = None, False
        del shelf.ready[_VARIANTS - 1 :]

    def _observe(self, shelf: _Shelf, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call as it is, on the stream of captures: what it leaves behind, as workspaces, is then there. Of the
        very first call nothing else is kept: it makes what later ones find made."""
        device = self._device
        assert device is not None
        watch = Watch([self._function, *call.others])
        random = device.generator().get_state()
        grads = {id(tensor): tensor.grad for tensor in watch.tensors if tensor.is_leaf}
        with device.side(), without_autocast_cache(), _inside():
            result, seen = observed(lambda: self._function(*args, **kwargs), call.tensors, device)
        tensors = tensors_in(result)
        device.hand_over(tensors)
        seen.random = not torch.equal(random, device.generator().get_state())
        seen.entry_grads = [grads.get(id(leaf)) for leaf in seen.leaves]
        kind = _kind(tensors, seen)
        if kind is Kind.STEP:  # its backward has run; and what is left of it would hold on to gradients' nodes
            result = map_tensors(result, torch.Tensor.detach)
        if not self._warm:
            self._warm = True
            return result
        changed = watch.limited_to(seen.names).changes(first=True)
        if seen.only_waits and not changed:
            seen = self._seen_in_a_capture(call, args, kwargs, seen) or seen
        if not seen.refusals and any(tensor.device.type != device.type for tensor in tensors):
            seen.refusals.append(Refusal("its result holds a CPU tensor", None, "return tensors of the device"))
        if not seen.refusals and not seen.launches:
            seen.refusals.append(Refusal("it puts no work on the device"))
        for refusal in seen.refusals:
            self._note(refusal)
        if seen.refusals:
            shelf.refusal = seen.refusals[0]
            return result
        shelf.effects = shelf.effects + 1 if changed else 0
        if shelf.effects > 1:  # the first time may fill a cache
            reason = f"it changes the program's own state at each call, and a graph would not: {changed[0]}"
            self._refuse(shelf, Refusal(reason, None, "do that outside, or write into a tensor"))
        shelf.kind, shelf.seen = kind, None if changed else seen
        return result

    def _seen_in_a_capture(
        self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Observation
    ) -> Observation | None:
        """What a function does that leaves out its waits while it is captured. None where it does not."""
        device = self._device
        assert device is not None
        if not seen.asks_whether_captured:
            return None
        try:
            with without_autocast_cache(), _inside():
                graph, (_, dry), _ = device.capture(
                    device.new_pool(),
                    [device.generator(), *seen.generators],
                    lambda: observed(lambda: self._function(*args, **kwargs), call.tensors, device, stops=True),
                )
        except (Refused, RuntimeError):
            return None
        graph.reset()
        dry.random = seen.random
        grads = {id(leaf): grad for leaf, grad in zip(seen.leaves, seen.entry_grads, strict=True)}
        dry.entry_grads = [grads.get(id(leaf)) for leaf in dry.leaves]
        dry.names = None if dry.names is None or seen.names is None else dry.names | seen.names
        return dry

    def _capture(self, shelf: _Shelf, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = self._device
        assert device is not None
        assert shelf.seen is not None
        if shelf.kind is Kind.STEP and shelf.seen.concerns_grads() and not shelf.seen.grads_as_seen():
            shelf.strikes += 1
            if shelf.strikes >= _STRIKES:
                reason = "what it relies on changes between calls: gradients that it reads are other tensors"
                self._refuse(shelf, Refusal(reason, None, "keep them, with zero_grad(set_to_none=False)"))
                return self._function(*args, **kwargs)
            return self._observe(shelf, call, args, kwargs)
        candidate = Candidate(
            self._function, args, kwargs, call.tensors, [self._function, *call.others], shelf.seen, shelf.kind
        )
        try:
            with _inside():
                ready = prepared(device, self._pool_for(shelf.kind), candidate, self._options)
        except Refused as refused:
            self._refuse(shelf, refused.refusals[0])
            return self._function(*args, **kwargs)
        except Exception as error:
            reason = f"it could not be captured: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            self._refuse(shelf, Refusal(reason, raising_place(error)), error)
            return self._function(*args, **kwargs)
        self._tally.captures += 1
        shelf.spent = True
        shelf.ready.insert(0, ready)
        self._evict(shelf)
        ready.checks_left = 0
        served, result = self._try(shelf, ready, call, args, kwargs)
        ready.checks_left = 1
        return result if served else self._function(*args, **kwargs)

    def _pool_for(self, kind: Kind) -> Any:
        """One for all graphs whose results are copied before another replay; what autograd keeps is apart."""
        assert self._device is not None
        pool = self._device.new_pool() if kind is Kind.DIFFERENTIABLE else self._device.shared_pool()
        if pool not in self._pools:
            self._pools.append(pool)
        return pool

    def _shelf(self, call: Call) -> _Shelf:
        shelf = self._shelves.get(call.key)
        if shelf is None:
            shelf = self._shelves[call.key] = _Shelf(call.others, tuple(tuple(t.shape) for t in call.tensors))
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
        """Says why, once for each reason; raises with strict=True."""
        if self._strict:
            raise GraphedError(f"{self!r} runs as it is: {refusal}") from cause
        if refusal not in self._tally.refusals:
            self._tally.refusals.append(refusal)
            caller = calling_place()
            file, line = (caller.file, caller.line) if caller else ("<unknown>", 1)
            warnings.warn_explicit(f"{self!r} runs as it is: {refusal}", RuntimeWarning, file, line)

    def _in_a_bucket(self, padded: Padded, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not padded.proved:
            return self._prove(padded, call, args, kwargs)
        self._tally.padded += padded.padding
        self._tally.worked_on += padded.elements
        return padded.cut(self._serve(padded.call, padded.args, padded.kwargs))

    def _prove(self, padded: Padded, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a call as it is and in its bucket; gives the result of the former."""
        device = self._device
        assert device is not None
        random = device.generator().get_state()
        with device.side(), _inside():
            result, seen = observed(lambda: self._function(*args, **kwargs), call.tensors, device)
            seen.random = not torch.equal(random, device.generator().get_state())
            try:
                safe = not (seen.written or seen.written_inputs or seen.random or seen.refusals)
                prove(padded, result, seen, self._function(*padded.args, **padded.kwargs) if safe else None)
            except Refused as refused:
                self._note(refused.refusals[0])
        device.hand_over(tensors_in(result))
        return result


_local = threading.local()


class _inside:  # noqa: N801 - used as a context manager
    """A function that is being observed or captured may call another graphed one, which then runs as it is."""

    def __enter__(self) -> None:
        _local.depth = getattr(_local, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        _local.depth -= 1


def _elsewhere() -> bool:
    """Whether something else is to see the operators themselves: a mode, a transform, a compiler, another capture."""
    return bool(
        getattr(_local, "depth", 0)
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
    )


def _kind(results: list[torch.Tensor], seen: Observation) -> Kind:
    changes = bool(seen.written or seen.written_inputs)
    grads = bool(seen.leaves)
    if differentiable(results) and torch.is_grad_enabled() and not (seen.backward_ran and (changes or grads)):
        return Kind.DIFFERENTIABLE
    return Kind.STEP if changes or (seen.backward_ran and grads) else Kind.PURE
