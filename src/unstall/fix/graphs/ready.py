"""A captured graph with all that a call must find unchanged to be served by it."""

from __future__ import annotations

import operator
import weakref
from itertools import chain
from typing import Any

import torch

from unstall.fix.graphs.capture.captured import Captured
from unstall.fix.graphs.look.unchanged import count_of, layout_of, unchanged
from unstall.fix.graphs.look.watch import Watch
from unstall.fix.graphs.outputs import Outputs
from unstall.fix.graphs.sharing import Sharing
from unstall.fix.graphs.stats import GraphStats
from unstall.fix.graphs.subject import Kind, Subject, differentiable, reached_from
from unstall.fix.graphs.verify import Times
from unstall.fix.tensors.storages import lies_in, storage_of

_version = operator.attrgetter("_version")
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class Ready:
    """One graph, ready to serve calls. The memory that it reads stays alive with it."""

    def __init__(
        self,
        subject: Subject,
        captured: Captured,
        watch: Watch,
        entry_grads: list[torch.Tensor | None],
        times: Times,
        seconds: float,
        repeatable: bool,
        note: str,
    ) -> None:
        self.subject = subject
        self.captured = captured
        self.watch = watch
        self.hits = 0
        self.checks_left = 1
        self._times, self._seconds, self._repeatable, self._note = times, seconds, repeatable, note
        seen = subject.seen
        storages = seen.memory()
        reached = [tensor for tensor in watch.tensors if lies_in(tensor, storages)]
        # Of memory that the program has a tensor of, views that the function made each time tell nothing more.
        known = set(map(storage_of, reached))
        others = [tensor for tensor in seen.externals if storage_of(tensor) not in known]
        self._externals = list({id(tensor): tensor for tensor in (*others, *reached)}.values())
        self._layouts = list(map(layout_of, self._externals))
        self._alive = [tensor.detach() for tensor in seen.externals]
        # A gradient that the function reads must be the same tensor as then; where there was none, there must be none.
        pairs = list(zip(subject.leaves, entry_grads, strict=True))
        kept = [(leaf, grad) for leaf, grad in pairs if grad is None or lies_in(grad, storages)]
        self._entry_grads = [(leaf, "grad", grad) for leaf, grad in kept]
        result, exit_grads = captured.results[0]
        self._exit_grads = list(zip(subject.leaves, exit_grads, strict=True))
        self.reached = (
            reached_from(self.differentiable(), subject.wanted) if subject.kind is Kind.DIFFERENTIABLE else []
        )
        self.flows_to = sorted(set().union(*self.reached))  # of what is wanted: what any result depends on
        self.outputs = Outputs(result, subject.buffers.tensors, seen.externals, watch.known)
        captured.results[0] = (self.outputs.result, exit_grads)
        watch.known.clear()
        self.sharing = Sharing(seen)
        self._noticed = [tensor for tensor in self._externals if storage_of(tensor) in seen.noticed]
        # What a graph without autograd does not depend on.
        trained = self._externals if seen.backward_ran or seen.grad_was_enabled else []
        self._trained = [(tensor, "requires_grad", tensor.requires_grad) for tensor in trained]
        self._hooks = [(leaf, name, count_of(leaf, name)) for leaf in subject.leaves for name in _HOOKS]
        self._unchanged = unchanged(
            attributes=self._trained + self._entry_grads, counts=self._hooks, tensors=self._externals
        )
        self.awaited: weakref.ref[Any] | None = None  # the backward that belongs to the last forward
        self.pure = subject.kind is Kind.PURE and not seen.random and not seen.may_fault
        """Whether a replay that turns out to be wrong can be thrown away. One that might fault cannot: a new index may
        be out of the bounds of a table that the program has replaced."""

    @property
    def busy(self) -> bool:
        """Whether its memory holds what a backward that may still come will need."""
        awaited = self.awaited() if self.awaited is not None else None
        return awaited is not None and not awaited.done

    def holds(self) -> bool:
        """Whether all that the graph relies on is as it was at its capture."""
        return self._unchanged.holds() and self.watch.unchanged()

    def broken(self) -> list[str]:
        """What is not, in words."""
        found = self.watch.changes()
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
        """How often what it reads was written to so far."""
        return list(map(_version, chain(inputs, self._externals)))

    def fill(self, inputs: list[torch.Tensor]) -> None:
        """Copies a call's inputs into the graph's own memory, on the current stream: no harm where it is not served."""
        self.subject.device.order()
        self.subject.buffers.fill(inputs)

    def replay(self) -> None:
        """Serves the call that it was filled with up to its result, on the current stream."""
        self.captured.graphs[0].replay()
        self.hits += 1

    def leave(self, inputs: list[torch.Tensor]) -> None:
        """What the call changes beside its result: arguments, and which tensors are gradients."""
        if self._noticed:  # which autograd can see from operators alone
            torch.autograd.graph.increment_version(self._noticed)
        if self.subject.written_inputs:
            with torch.no_grad():
                for place in self.subject.written_inputs:
                    self.subject.buffers.give_back(place, inputs[place])
        for leaf, grad in self._exit_grads:
            if leaf.grad is not grad:
                leaf.grad = grad

    def served(self, inputs: list[torch.Tensor]) -> Any:
        """The result of a call without autograd, whose inputs it was filled with."""
        self.replay()
        self.leave(inputs)
        return self.outputs.copies(inputs)

    def differentiable(self) -> list[torch.Tensor]:
        return differentiable(self.captured.results[0])

    def stats(self, shapes: tuple[tuple[int, ...], ...]) -> GraphStats:
        times, subject = self._times, self.subject
        return GraphStats(
            shapes,
            subject.kind.name.lower(),
            self.captured.lanes,
            subject.seen.launches,
            self.captured.nodes,
            self._seconds,
            times.eager,
            times.serial,
            times.parallel,
            self.hits,
            self._repeatable,
            self._note,
        )

    @property
    def launches(self) -> int:
        """What one replay saves in calls that would launch something."""
        return max(0, (self.captured.nodes or self.subject.seen.launches) - len(self.captured.graphs))

    @property
    def saves_seconds(self) -> float:
        times = self._times
        best = times.parallel if self.captured.lanes > 1 and times.parallel is not None else times.serial
        return max(0.0, times.eager - best)
