"""The callable that `unstall.graphed` returns for a function. Like the function, the callable can be called, bound,
copied and pickled."""

from __future__ import annotations

import copy
import functools
import operator
import sys
import threading
from collections.abc import Callable
from typing import Any

from unstall.fix.graphs.buckets import Buckets, Padded, Sizes, proved_run
from unstall.fix.graphs.call_arguments import CallArguments, arguments_of
from unstall.fix.graphs.capture.capture_device import CaptureDevice, device_for
from unstall.fix.graphs.disabled import graphs_are_disabled
from unstall.fix.graphs.graphed_stats import GraphedCounters, GraphedStats
from unstall.fix.graphs.prepare import CaptureOptions
from unstall.fix.graphs.refusals import Refused, ReportedRefusals
from unstall.fix.graphs.serving import Answer, Eager, GraphServer, Served
from unstall.fix.tensors.nesting import tensors_in

_PATIENCE_SECONDS = 0.02
_YET = "the first call warms up, the first of each shape is observed, and the next one is captured"

_turn = threading.RLock()


class GraphedFunction:
    """A function whose calls run as CUDA graphs, if tests show that the graphs give the same results and are faster."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        lanes: tuple[int, ...] | None,
        sizes: Sizes | None,
        verify: bool,
        max_graphs: int,
        strict: bool,
        device: CaptureDevice | None = None,
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self.anew = functools.partial(
            GraphedFunction,
            lanes=lanes,
            sizes=sizes,
            verify=verify,
            max_graphs=max_graphs,
            strict=strict,
            device=device,
        )
        """Wraps another function with the same options and its own graphs."""
        self._device = device
        self._counters = GraphedCounters()
        self._refusals = ReportedRefusals(repr(self), strict=strict)
        self._server = GraphServer(function, CaptureOptions(lanes, verify), max_graphs, self._counters, self._refusals)
        self._buckets = Buckets(sizes) if sizes is not None else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Graphs share memory, so one call at a time is served. A call that runs eagerly does not hold the lock. Calls
        # wait only briefly for it: a function under observation may itself wait for another thread's call.
        if not graphs_are_disabled() and _turn.acquire(timeout=_PATIENCE_SECONDS):
            try:
                answer = self._answered(args, kwargs)
            finally:
                _turn.release()
            if isinstance(answer, Served):
                return answer.result
            if answer is Eager.FASTER:
                return self._called_for_speed(args, kwargs)
        return self._called_eagerly(args, kwargs)

    # Recordings of these calls are recognised by the names of these two methods (locate/proving.py).
    def _called_eagerly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._function(*args, **kwargs)

    def _called_for_speed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._function(*args, **kwargs)

    def _answered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
        self._counters.calls += 1
        device = self._device = self._device or device_for(tensors_in((args, kwargs)))
        if device is None or device.capturing():  # the program captures a graph of its own
            return Eager.UNSERVED
        try:
            call = arguments_of(args, kwargs)
        except Refused as refused:
            self._refusals.report(refused.refusals[0])
            return Eager.UNSERVED
        padded = self._buckets.padded(call) if self._buckets is not None else None
        if padded is not None:
            return self._answered_in_bucket(device, padded, call)
        return self._server.serve(device, call)

    def _answered_in_bucket(self, device: CaptureDevice, padded: Padded, call: CallArguments) -> Answer:
        if not padded.proved:
            result, refusal = proved_run(device, self._function, padded, call)
            if refusal is not None:
                self._refusals.report(refusal)
            return Served(result)
        self._counters.padded += padded.padding
        self._counters.worked_on += padded.elements
        answer = self._server.serve(device, padded.call)
        return Served(padded.cut(answer.result)) if isinstance(answer, Served) else answer

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Binds a method to an object. The object is an argument of each call, so each object has its own graphs."""
        return self if instance is None else BoundGraphedFunction(self, instance)

    def __repr__(self) -> str:
        return f"graphed({getattr(self._function, '__qualname__', type(self._function).__name__)})"

    def __copy__(self) -> GraphedFunction:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphedFunction:
        """If this object wraps a function, returns this object itself. If this object wraps a bound method, returns a
        new GraphedFunction for a copy of the object that the method is bound to."""
        function = copy.deepcopy(self._function, memo)
        return self if function is self._function else self.anew(function)

    def __reduce__(self) -> Any:
        """Pickles this object as its qualified name, if the name refers to this object. Otherwise, pickles the wrapped
        function."""
        name = str(getattr(self, "__qualname__", ""))
        try:
            if operator.attrgetter(name)(sys.modules[self.__module__]) is self:
                return name
        except (AttributeError, KeyError):
            pass
        return operator.getitem, ([self._function], 0)

    def stats(self) -> GraphedStats:
        """Returns statistics of all calls of this function so far."""
        counters, server, refusals = self._counters, self._server, tuple(self._refusals.reasons)
        graphs = tuple(graph.stats(entry.shapes) for entry, graph in server.cache.graphs())
        note = ""
        if counters.calls and self._device is None:
            note = "no CUDA device: it runs as it is"
        elif counters.calls and not graphs and not refusals:
            note = _YET + (f"; {self._buckets.progress()}" if self._buckets is not None else "")
        return GraphedStats(
            counters.calls,
            counters.hits,
            counters.captures,
            counters.evictions,
            graphs,
            refusals,
            counters.padded / counters.worked_on if counters.worked_on else 0.0,
            sum(map(self._device.pool_bytes, server.pools)) if self._device is not None else 0,
            counters.launches_saved,
            counters.seconds_saved,
            note,
        )


class BoundGraphedFunction(functools.partial[Any]):
    """A graphed method that is bound to an object. It is a `partial` because calls of a `partial` are implemented in
    C."""

    __slots__ = ()

    def stats(self) -> GraphedStats:
        """Returns statistics of all calls of the graphed method so far, on all objects of the class."""
        graphed: GraphedFunction = self.func  # type: ignore[assignment]
        return graphed.stats()
