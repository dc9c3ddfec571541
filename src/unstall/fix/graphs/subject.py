"""A function with one call's arguments, run eagerly or by graphs, so that both can be compared and timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch

from unstall.fix.graphs.autograd_nodes import is_leaf, node_of, nodes_behind
from unstall.fix.graphs.capture.captured import Captured, Segment
from unstall.fix.graphs.capture.device import Device
from unstall.fix.graphs.inside import inside
from unstall.fix.graphs.kept_for_backward import Kept, kept_for_backward
from unstall.fix.graphs.look.observe import Observation
from unstall.fix.graphs.signature import exchanged
from unstall.fix.graphs.state import Buffers, Saved, copies_of
from unstall.fix.tensors.nesting import tensors_in


class Kind(Enum):
    PURE = "nothing is written but its result"
    STEP = "it changes tensors beside its result"
    DIFFERENTIABLE = "autograd goes through it"


class Subject:
    """Inputs are copied into buffers; all else a graph reads and writes where it lies."""

    def __init__(
        self,
        device: Device,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[torch.Tensor],
        seen: Observation,
        kind: Kind,
    ) -> None:
        self.device = device
        self.kind = kind
        self.seen = seen
        self._function = function
        self._args, self._kwargs = args, kwargs
        self.buffers = Buffers(inputs)
        self.generators = [device.generator(), *seen.generators]
        self.differentiated = [*seen.leaves, *seen.derived] if kind is Kind.DIFFERENTIABLE else []
        own = [leaf for leaf in seen.leaves if id(leaf) not in seen.left_alone]
        self.leaves = own if kind is Kind.STEP and seen.concerns_grads() else []
        self.written_inputs = sorted(seen.written_inputs)
        self.kept = Kept()
        self._probes: list[torch.Tensor] | None = None
        self.can_run_again = not (seen.written or seen.written_inputs or seen.random)
        """For a second backward; else what the first one needs is kept."""

    def saved(self) -> Saved:
        return Saved(self.seen.written, self.generators, self.leaves)

    def segments(self) -> list[Segment]:
        """For `capture.py`: a forward, and a backward where autograd is to go through."""

        def forward(_: list[Any]) -> Callable[[], Any]:
            return lambda: self._called(self.buffers.tensors)

        def backward(results: list[Any]) -> Callable[[], Any]:
            outputs = differentiable(results[0])
            self.kept = kept_for_backward(outputs, self.buffers.tensors, self.seen.externals)
            grads = [torch.empty_like(output) for output in outputs]
            wanted = self.wanted
            return lambda: (grads, _grads(outputs, wanted, grads, retain_graph=not self.can_run_again))

        return [forward, backward] if self.kind is Kind.DIFFERENTIABLE else [forward]

    @property
    def wanted(self) -> list[torch.Tensor]:
        """What gradients flow to: inputs that require them, and tensors from outside."""
        return self.wanted_of(self.buffers.tensors)

    def wanted_of(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor for tensor in inputs if tensor.requires_grad] + self.differentiated

    def _called(self, inputs: list[torch.Tensor]) -> Any:
        args, kwargs = exchanged(self._args, self._kwargs, inputs)
        with own_autocast_cache():
            result = self._function(*args, **kwargs)
        return (result, [leaf.grad for leaf in self.leaves])

    def eager(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """All that one call gives: results, gradients, and what it wrote into its inputs. The inputs are its own."""
        with self.device.side():
            result = self._called(inputs)
            given = tensors_in(result)
            if self.kind is Kind.DIFFERENTIABLE:
                outputs = differentiable(result)
                given = [*given, *_present(_grads(outputs, self.wanted_of(inputs), list(map(_probe, outputs))))]
            return [tensor.detach().clone() for tensor in (*given, *(inputs[i] for i in self.written_inputs))]

    def replayed(self, captured: Captured, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The same by graphs."""
        probes = list(map(_probe, captured.results[1][0])) if self.kind is Kind.DIFFERENTIABLE else []
        return self._replayed(captured, inputs, probes)

    def _replayed(
        self, captured: Captured, inputs: list[torch.Tensor], probes: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        self.device.order()
        self.buffers.fill(inputs)
        given = tensors_in(captured.results[0])
        if self.kind is Kind.DIFFERENTIABLE:
            grads, wanted = captured.results[1]
            for grad, probe in zip(grads, probes, strict=True):
                grad.copy_(probe)
            given = [*given, *_present(wanted)]
        captured.replay()
        return [tensor.detach().clone() for tensor in (*given, *(self.buffers.tensors[i] for i in self.written_inputs))]

    def gradients(
        self, inputs: list[torch.Tensor], grads: tuple[torch.Tensor | None, ...], *, create_graph: bool
    ) -> tuple[torch.Tensor | None, ...]:
        """For all that is wanted, by running the function. `grads`: those of its results."""
        with inside():
            result, _ = self._called(inputs)
        given = [pair for pair in zip(differentiable(result), grads, strict=True) if pair[1] is not None]
        outputs, weights = [output for output, _ in given], [grad for _, grad in given]
        wanted = self.wanted_of(inputs)
        found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            outputs, wanted, weights, allow_unused=True, create_graph=create_graph
        )
        return found

    def timed_eager(self, inputs: list[torch.Tensor], saved: Saved) -> float:
        """From the saved state: what counts its calls may count beyond what it indexes by that."""
        copies = copies_of(inputs)

        def run() -> None:
            result = self._called(copies)
            if self.kind is Kind.DIFFERENTIABLE:
                outputs = differentiable(result)
                if self._probes is None:
                    self._probes = list(map(_probe, outputs))
                _grads(outputs, self.wanted_of(copies), self._probes)

        with self.device.side():
            if self.kind is Kind.DIFFERENTIABLE and self._probes is None:
                saved.restore()
                run()
            saved.restore()
            return self.device.seconds(run)

    def timed_replay(self, captured: Captured, inputs: list[torch.Tensor], saved: Saved) -> float:
        probes = list(map(_probe, captured.results[1][0])) if self.kind is Kind.DIFFERENTIABLE else []
        saved.restore()
        return self.device.seconds(lambda: self._replayed(captured, inputs, probes))


def differentiable(result: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(result) if tensor.requires_grad]


def reached_from(outputs: list[torch.Tensor], wanted: list[torch.Tensor]) -> list[set[int]]:
    """For each output the places of those that it depends on: a backward from others leaves them without gradients. One
    that is itself wanted depends on none: the caller is given its own, and what flows to that does not come by here.
    """
    leaves = {id(tensor): place for place, tensor in enumerate(wanted) if is_leaf(tensor)}
    nodes = {node_of(tensor): place for place, tensor in enumerate(wanted) if not is_leaf(tensor)}
    found: list[set[int]] = []
    for output in outputs:
        reached = set()
        for node in nodes_behind([output]):
            leaf = getattr(node, "variable", None)
            if node in nodes:
                reached.add(nodes[node])
            elif leaf is not None and id(leaf) in leaves:
                reached.add(leaves[id(leaf)])
        found.append(reached)
    return found


@contextmanager
def own_autocast_cache() -> Iterator[None]:
    """Under autocast, casts of weights are kept for as long as its context lasts. A graph would keep those of one step
    and never see the weights of the next, and eager would find those of a capture. Within the call they are kept as
    in eager: gradients of all uses are added up in the lower precision."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


def _grads(
    outputs: list[torch.Tensor],
    wanted: list[torch.Tensor],
    grads: list[torch.Tensor],
    *,
    retain_graph: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    if not outputs or not wanted:
        return ()
    return tuple(torch.autograd.grad(outputs, wanted, grads, retain_graph=retain_graph, allow_unused=True))


def _probe(output: torch.Tensor) -> torch.Tensor:
    """A gradient to try: not all the same, and drawn from no random generator."""
    steps = torch.arange(output.numel(), device=output.device, dtype=torch.float32)
    return ((steps % 7 - 3) / 4 + 0.5).to(output.dtype).reshape(output.shape)


def _present(tensors: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors if tensor is not None]
