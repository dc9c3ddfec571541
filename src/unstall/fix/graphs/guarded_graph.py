"""A captured graph, and the guards that must hold before the graph serves a call."""

from __future__ import annotations

import operator
import weakref
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch

from unstall.fix.graphs.capture.captured import Captured
from unstall.fix.graphs.examine.guards import count_of, guards_of, layout_of
from unstall.fix.graphs.examine.reachable_state import ReachableState
from unstall.fix.graphs.graphed_stats import GraphStats
from unstall.fix.graphs.outputs import Outputs
from unstall.fix.graphs.static_call import FunctionKind, StaticCall, differentiable, reached_from
from unstall.fix.graphs.static_inputs import Clones, Sharing
from unstall.fix.graphs.verify import Times
from unstall.fix.tensors.storages import lies_in, storage_of

_version = operator.attrgetter("_version")
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class PendingBackward:
    """An object that is alive as long as a backward pass may follow a replayed forward pass. The autograd node of the
    forward pass holds this object, so the object lives as long as the node.

    The tensors that were saved for the backward pass are in the memory of the graph. Another replay before the backward
    pass would overwrite these tensors.

    Attributes:
        done: Whether the backward pass has run, so that the tensors are no longer needed.
    """

    def __init__(self) -> None:
        self.done = False


@dataclass(frozen=True, slots=True)
class Preparation:
    """How a graph was captured and measured.

    Attributes:
        times: The times of eager runs and replays.
        seconds: The time for the capture in s, with all tests and measurements.
        repeatable: True if eager calls and replays give identical bits. False if they agree as closely as two eager
            calls.
        note: A remark. "" if there is none.
    """

    times: Times
    seconds: float
    repeatable: bool
    note: str


class GuardedGraph:
    """A captured CUDA graph that serves calls, and its guards: facts that must hold before it is replayed. This object
    keeps alive the memory that the graph reads."""

    def __init__(
        self,
        static_call: StaticCall,
        captured: Captured,
        reachable: ReachableState,
        entry_grads: list[torch.Tensor | None],
        preparation: Preparation,
    ) -> None:
        self.static_call = static_call
        self.captured = captured
        self.reachable = reachable
        self.hits = 0
        self.checks_left = 1  # comparisons with eager still to do, on the program's next inputs
        self._preparation = preparation
        seen = static_call.seen
        storages = seen.memory()
        reached = [tensor for tensor in reachable.tensors if lies_in(tensor, storages)]
        # If the program has a tensor on some memory, the function's own views of that memory need no guards.
        known = set(map(storage_of, reached))
        others = [tensor for tensor in seen.externals if storage_of(tensor) not in known]
        self._externals = list({id(tensor): tensor for tensor in (*others, *reached)}.values())
        self._layouts = list(map(layout_of, self._externals))
        self._alive = [tensor.detach() for tensor in seen.externals]
        # A `.grad` that the function reads must be the same tensor as at the capture; one that was None must be None.
        pairs = list(zip(static_call.leaves, entry_grads, strict=True))
        kept = [(leaf, grad) for leaf, grad in pairs if grad is None or lies_in(grad, storages)]
        self._entry_grads = [(leaf, "grad", grad) for leaf, grad in kept]
        result, exit_grads = captured.results[0]
        self._exit_grads = list(zip(static_call.leaves, exit_grads, strict=True))
        through_autograd = static_call.kind is FunctionKind.DIFFERENTIABLE
        self.reached = reached_from(self.differentiable(), static_call.wanted) if through_autograd else []
        no_places: set[int] = set()
        self.flows_to = sorted(
            no_places.union(*self.reached)
        )  # indices in `wanted` of tensors that a result depends on
        found = captured.results[1][1] if through_autograd else ()
        self.given = [place for place in self.flows_to if found[place] is not None]  # those with a gradient
        self.gradients = Clones([found[place] for place in self.given])
        self.outputs = Outputs(result, static_call.inputs.tensors, seen.externals, reachable.known)
        captured.results[0] = (self.outputs.result, exit_grads)
        reachable.known.clear()
        self.sharing = Sharing(seen)
        self._noticed = [tensor for tensor in self._externals if storage_of(tensor) in seen.noticed]
        # A graph without autograd does not depend on requires_grad.
        trained = self._externals if seen.backward_ran or seen.grad_was_enabled else []
        self._trained = [(tensor, "requires_grad", tensor.requires_grad) for tensor in trained]
        self._hooks = [(leaf, name, count_of(leaf, name)) for leaf in static_call.leaves for name in _HOOKS]
        self._guards = guards_of(
            attributes=[*self._trained, *self._entry_grads], counts=self._hooks, tensors=self._externals
        )
        self.pending: weakref.ref[PendingBackward] | None = None  # the last forward's backward
        self.pure = static_call.kind is FunctionKind.PURE and not seen.random and not seen.may_fault
        """Whether a replay can be discarded if guards fail afterwards. A replay that may cause a device fault cannot be
        discarded. For example, an index may be out of bounds of an old table that the program has replaced."""

    @property
    def busy(self) -> bool:
        """Whether a backward pass that has not run yet may need the graph's memory."""
        pending = self.pending() if self.pending is not None else None
        return pending is not None and not pending.done

    def guards_hold(self) -> bool:
        """Returns whether all state that the graph relies on is unchanged since the capture."""
        return self._guards.hold() and self.reachable.guards_hold()

    def failed_guard(self) -> str:
        """Returns a description of what has changed since the capture, so that a guard of the graph fails. If several
        things have changed, returns only one."""
        return next(iter(self._failed_guards()), "a tensor that it reads")

    def _failed_guards(self) -> list[str]:
        found = self.reachable.changes()
        try:
            layouts = [(layout_of(tensor), then) for tensor, then in zip(self._externals, self._layouts, strict=True)]
        except RuntimeError:
            return [*found, "a tensor that it reads is of another kind"]
        moved = sum(now[0] != then[0] for now, then in layouts)
        if moved and not found:
            found.append(f"{moved} tensors that it reads are in other memory")
        if any(now[1:] != then[1:] for now, then in layouts):
            found.append("a tensor that it reads has another size, or other strides")
        if any(getattr(tensor, name) is not then for tensor, name, then in self._trained):
            found.append("other tensors require gradients")
        if any(count_of(leaf, name) != then for leaf, name, then in self._hooks):
            found.append("gradients have other hooks")
        if any(getattr(leaf, name) is not then for leaf, name, then in self._entry_grads):
            found.append("gradients that it adds to are other tensors")
        return found

    def versions(self, inputs: list[torch.Tensor]) -> list[int]:
        """Returns the version counter of each tensor that the graph depends on: of `inputs`, the inputs of a call, and
        of the tensors that the graph reads in place. Autograd increments the counter at each write to the tensor."""
        return list(map(_version, chain(inputs, self._externals)))

    def fill(self, inputs: list[torch.Tensor]) -> None:
        """Copies the inputs of a call into the tensors that the graph reads (static inputs), on the current stream. Has
        no other effect."""
        self.static_call.device.order()
        self.static_call.inputs.fill(inputs)

    def replay(self) -> None:
        """Replays the graph of the function's forward pass, on the current stream. The inputs must have been copied
        into the tensors that the graph reads (`fill`)."""
        self.captured.graphs[0].replay()
        self.hits += 1

    def leave(self, inputs: list[torch.Tensor]) -> None:
        """After a replay, applies the side effects of the function that a replay does not have: writes to the arguments
        `inputs` that the function writes to, and sets `.grad`."""
        if self._noticed:  # autograd sees writes of operators, not of a replay
            torch.autograd.graph.increment_version(self._noticed)
        if self.static_call.written_inputs:
            with torch.no_grad():
                for place in self.static_call.written_inputs:
                    self.static_call.inputs.give_back(place, inputs[place])
        for leaf, grad in self._exit_grads:
            if leaf.grad is not grad:
                leaf.grad = grad

    def replayed(self, inputs: list[torch.Tensor]) -> Any:
        """Replays the graph for a call without autograd. Returns the call's result. The inputs must have been copied
        into the tensors that the graph reads (`fill`)."""
        self.replay()
        self.leave(inputs)
        return self.outputs.copies(inputs)

    def differentiable(self) -> list[torch.Tensor]:
        return differentiable(self.captured.results[0])

    def stats(self, shapes: tuple[tuple[int, ...], ...]) -> GraphStats:
        made, static_call = self._preparation, self.static_call
        return GraphStats(
            shapes,
            static_call.kind.name.lower(),
            self.captured.lanes,
            static_call.seen.launches,
            self.captured.nodes,
            made.seconds,
            made.times.eager,
            made.times.serial,
            made.times.parallel,
            self.hits,
            made.repeatable,
            made.note,
        )

    @property
    def launches(self) -> int:
        """The number of launches that the host does not have to make when the graph is replayed."""
        return max(0, (self.captured.nodes or self.static_call.seen.launches) - len(self.captured.graphs))

    @property
    def saves_seconds(self) -> float:
        times = self._preparation.times
        best = times.parallel if self.captured.lanes > 1 and times.parallel is not None else times.serial
        return max(0.0, times.eager - best)
