"""Serves a call of a graphed function. If the guards of a graph hold, replays this graph. Otherwise, observes the call,
captures the call or runs the call eagerly."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from unstall.fix.graphs.autograd.replay_node import replayed_through_autograd
from unstall.fix.graphs.autograd.stream_warnings import no_stream_warnings
from unstall.fix.graphs.cache_entry import CacheEntry, State
from unstall.fix.graphs.call_arguments import CallArguments
from unstall.fix.graphs.capture.capture_device import CaptureDevice, Pool
from unstall.fix.graphs.disabled import graphs_disabled
from unstall.fix.graphs.examine.examined_call import examined
from unstall.fix.graphs.examine.warnings_raised import silent_proof
from unstall.fix.graphs.graph_cache import GraphCache
from unstall.fix.graphs.graphed_stats import GraphedCounters
from unstall.fix.graphs.guarded_graph import GuardedGraph
from unstall.fix.graphs.prepare import CaptureOptions, CaptureRequest, prepared
from unstall.fix.graphs.refusals import Refusal, Refused, ReportedRefusals, Shapes, always_new, failure
from unstall.fix.graphs.static_call import FunctionKind
from unstall.fix.graphs.static_inputs import Sharing
from unstall.fix.graphs.verify import check
from unstall.guarding.no_sync import allow_sync
from unstall.guest.step_replay import repeat_boundaries
from unstall.guest.steps import proving

_MOST_NEW = 8
"""How many consecutive calls with new arguments (other sizes or values) are observed. After that, a call is observed
only if its arguments have occurred before, because an observed call takes twice as long."""
_TELLING = 16  # such calls in a row, with no call served so far, after which that is told


class Served(NamedTuple):
    """The answer to a call that was served, by a graph or by an observed run. `result` is what the call returns."""

    result: Any


class Eager(Enum):
    """The answer to a call that must still be run eagerly."""

    UNSERVED = "no graph can serve it"
    FASTER = "a graph of it was measured, and gains nothing"


Answer: TypeAlias = Served | Eager


class GraphServer:
    """Serves the calls of one graphed function, either by the replay of a CUDA graph or by an observed eager run."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: CaptureOptions,
        max_graphs: int,
        counters: GraphedCounters,
        refusals: ReportedRefusals,
    ) -> None:
        self._function = function
        self._options = options
        self._counters = counters
        self._refusals = refusals
        self._warm = False
        self._new_in_a_row = 0
        self._shapes: Shapes = ()  # of the latest call
        self._always_new: Refusal | None = None
        self.cache = GraphCache(max_graphs)
        self.pools: list[Pool] = []

    def serve(self, device: CaptureDevice, call: CallArguments) -> Answer:
        entry = self.cache.entry(call)
        if self._is_new_again(entry):
            return Eager.UNSERVED
        if entry.graphs:
            if not entry.graphs[0].sharing.is_safe(call.tensors):
                return Eager.UNSERVED
            for graph in list(entry.graphs):
                answer = self._replay(entry, graph, call)
                if isinstance(answer, Served):
                    return answer
            if entry.state is State.SERVING and not entry.busy:
                self._report(entry.note_guards_failed(entry.graphs[0].failed_guard))
        if entry.state is State.DEFERRED and self._counters.calls >= entry.retry_at:
            entry.retry()
        if entry.refusal is not None and entry.state in (State.DEFERRED, State.REFUSED):
            self._refusals.repeat(entry.refusal)
            return Eager.FASTER if entry.refusal.gainless else Eager.UNSERVED
        if entry.busy:
            return Eager.UNSERVED
        if entry.state is State.UNSEEN:
            return self._observe(device, entry, call)
        return self._capture(device, entry, call)

    def _is_new_again(self, entry: CacheEntry) -> bool:
        """Returns whether the arguments of this call are new, and the arguments of each of the last eight calls were
        new too."""
        before, self._shapes = self._shapes, entry.shapes
        entry.calls += 1
        self._new_in_a_row = self._new_in_a_row + 1 if entry.calls == 1 else 0
        if self._new_in_a_row == _TELLING and not self._counters.hits:
            self._always_new = always_new(_TELLING, before, entry.shapes)
            self._report(self._always_new)
        return self._new_in_a_row > _MOST_NEW

    def _replay(self, entry: CacheEntry, graph: GuardedGraph, call: CallArguments) -> Answer:
        if graph.busy:
            return Eager.UNSERVED
        # While guards are checked, the device already copies the inputs and, if the result can be discarded, replays.
        graph.fill(call.tensors)
        if graph.pure and not graph.checks_left:
            result = graph.replayed(call.tensors)
            if not graph.guards_hold():
                graph.hits -= 1
                return Eager.UNSERVED
        else:
            if not graph.guards_hold():
                return Eager.UNSERVED
            if graph.checks_left and self._options.verify:
                if not self._checked(entry, graph, call):
                    return Eager.UNSERVED
                graph.fill(call.tensors)  # the check changed the static inputs
            graph.checks_left = 0
            if graph.static_call.kind is FunctionKind.DIFFERENTIABLE:
                result = replayed_through_autograd(graph, call.tensors)
            else:
                result = graph.replayed(call.tensors)
        entry.note_replayed(graph)
        counters = self._counters
        counters.hits += 1
        counters.launches_saved += graph.launches
        counters.seconds_saved += graph.saves_seconds
        repeat_boundaries(graph.static_call.seen.steps)
        return Served(result)

    def _checked(self, entry: CacheEntry, graph: GuardedGraph, call: CallArguments) -> bool:
        """Returns whether the graph and an eager run give the same results for this call. Restores the program's
        state. If the check fails for another reason, such as too little memory for it, refuses the graph."""
        try:
            saved = graph.static_call.saved()
            try:
                with proving(), graphs_disabled(), silent_proof(), allow_sync("the graph is checked"):
                    check(graph.static_call, graph.captured, call.tensors, saved)
            finally:
                saved.restore()
        except Refused as refused:
            self._report(entry.refuse(refused.refusals[0]))
            return False
        except Exception as error:
            self._report(entry.refuse(failure("checked", error)), error)
            return False
        return True

    def _observe(self, device: CaptureDevice, entry: CacheEntry, call: CallArguments) -> Served:
        """Runs a call eagerly and observes the run. The observation of a function's first call is not used, because the
        first call may create state that later calls reuse."""
        with proving():
            result, found = examined(device, self._function, call)
        if not self._warm:
            self._warm = True
            return Served(result)
        for reason in found.seen.refusals:
            self._refusals.report(reason)
        deferred_for = entry.refusal
        refusal = entry.note_run(found, self._counters.calls)
        if deferred_for is not None and not found.seen.uncertain:
            self._refusals.withdraw(deferred_for)
        self._report(refusal)
        return Served(result)

    def _capture(self, device: CaptureDevice, entry: CacheEntry, call: CallArguments) -> Answer:
        found = entry.examined
        assert found is not None
        changed = [] if found.reachable.guards_hold() else found.reachable.changes(first=True)
        if found.kind is FunctionKind.STEP and found.seen.concerns_grads() and not found.seen.grads_as_seen():
            changed.append("gradients that it reads are other tensors")
        if changed:
            refusal = entry.note_guards_failed(lambda: changed[0])
            if refusal is None:
                return self._observe(device, entry, call)
            self._report(refusal)
            return Eager.UNSERVED
        if not Sharing(found.seen).is_safe(call.tensors):
            reason = "it writes into an argument that shares memory with another, or with what it reads"
            self._report(entry.refuse(Refusal(reason, None, "pass a clone")))
            return Eager.UNSERVED
        try:
            waits = allow_sync("the call is captured, and timed")
            with proving(), graphs_disabled(), silent_proof(), no_stream_warnings(), waits:
                request = CaptureRequest(self._function, call, found)
                graph = prepared(device, self._pool_for(device, found.kind), request, self._options)
        except Refused as refused:
            self._report(entry.refuse(refused.refusals[0]))
            return Eager.UNSERVED
        except Exception as error:
            self._report(entry.refuse(failure("captured", error)), error)
            return Eager.UNSERVED
        self._counters.captures += 1
        if self._always_new is not None:
            self._refusals.withdraw(self._always_new)
        entry.note_captured(graph)
        self._counters.evictions += self.cache.evict(entry)
        graph.checks_left = 0
        answer = self._replay(entry, graph, call)
        graph.checks_left = 1
        return answer

    def _pool_for(self, device: CaptureDevice, kind: FunctionKind) -> Pool:
        """Returns the memory pool for a new graph. Graphs share one pool if the results of each graph are copied before
        another graph is replayed. A graph that keeps tensors for a backward, or leaves gradients in `.grad`, has a
        separate pool."""
        pool = device.shared_pool() if kind is FunctionKind.PURE else device.new_pool()
        if pool not in self.pools:
            self.pools.append(pool)
        return pool

    def _report(self, refusal: Refusal | None, cause: Exception | None = None) -> None:
        if refusal is not None:
            self._refusals.report(refusal, cause)
