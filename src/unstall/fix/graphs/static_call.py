"""Runs one call of a function with fixed input tensors (static inputs), either eagerly or as a replay of CUDA graphs.
The eager run and the replay can then be compared and timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch

from unstall.fix.graphs.autograd.nodes import SavedForBackward, is_leaf, node_of, nodes_behind, saved_for_backward
from unstall.fix.graphs.call_arguments import CallArguments
from unstall.fix.graphs.capture.capture_device import CaptureDevice
from unstall.fix.graphs.capture.captured import Captured, Segment
from unstall.fix.graphs.disabled import graphs_disabled
from unstall.fix.graphs.examine.observed_call import ObservedCall
from unstall.fix.graphs.saved_state import SavedState
from unstall.fix.graphs.static_inputs import StaticInputs, copies_of
from unstall.fix.tensors.nesting import tensors_in


class FunctionKind(Enum):
    PURE = "it only makes a result"
    STEP = "it changes tensors beside its result"
    DIFFERENTIABLE = "autograd goes through it"


class StaticCall:
    """One call of a function. It can run eagerly, or as a replay of CUDA graphs. For a replay, the inputs are copied
    into the tensors that the graphs read (static inputs). All other tensors are read and written in place."""

    def __init__(
        self,
        device: CaptureDevice,
        function: Callable[..., Any],
        call: CallArguments,
        seen: ObservedCall,
        kind: FunctionKind,
    ) -> None:
        self.device = device
        self.kind = kind
        self.seen = seen
        self._function = function
        self._call = call
        self.inputs = StaticInputs(call.tensors)
        self.generators = [device.generator(), *seen.generators]
        self.differentiated = [*seen.leaves, *seen.derived] if kind is FunctionKind.DIFFERENTIABLE else []
        own = [leaf for leaf in seen.leaves if id(leaf) not in seen.left_alone]
        self.leaves = own if kind is FunctionKind.STEP and seen.concerns_grads() else []
        self.written_inputs = sorted(seen.written_inputs)
        self.kept = SavedForBackward()
        self._probes: list[torch.Tensor] | None = None
        self.can_run_again = not (seen.written or seen.written_inputs or seen.random)
        """Whether the function can run again for a second backward. If False, the first backward retains the saved
        tensors."""

    def saved(self) -> SavedState:
        return SavedState(self.seen.written, self.generators, self.leaves)

    def segments(self) -> list[Segment]:
        """Returns the parts of the function to capture: the forward pass and, if the function is differentiable, the
        backward pass."""

        def forward(_: list[Any]) -> Callable[[], Any]:
            return lambda: self._called(self.inputs.tensors)

        def backward(results: list[Any]) -> Callable[[], Any]:
            outputs = differentiable(results[0])
            self.kept = saved_for_backward(outputs, self.inputs.tensors, self.seen.externals)
            grads = [torch.empty_like(output) for output in outputs]
            wanted = self.wanted
            return lambda: (grads, _grads(outputs, wanted, grads, retain_graph=not self.can_run_again))

        return [forward, backward] if self.kind is FunctionKind.DIFFERENTIABLE else [forward]

    @property
    def wanted(self) -> list[torch.Tensor]:
        """The tensors that gradients flow to in a replay: the tensors that the graphs read as inputs, if they require
        gradients, and the parameters that the function uses."""
        return self.wanted_of(self.inputs.tensors)

    def wanted_of(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor for tensor in inputs if tensor.requires_grad] + self.differentiated

    def _called(self, inputs: list[torch.Tensor]) -> Any:
        args, kwargs = self._call.exchanged(inputs)
        with own_autocast_cache():
            result = self._function(*args, **kwargs)
        return (result, [leaf.grad for leaf in self.leaves])

    def eager(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Runs the call eagerly. Returns copies of the call's results, of the gradients, and of the inputs that the
        call writes to. The call may write to `inputs`, so pass copies of the program's tensors."""
        with self.device.capture_stream():
            result = self._called(inputs)
            given = tensors_in(result)
            if self.kind is FunctionKind.DIFFERENTIABLE:
                outputs = differentiable(result)
                given = [*given, *_present(_grads(outputs, self.wanted_of(inputs), list(map(_probe, outputs))))]
            return [tensor.detach().clone() for tensor in (*given, *(inputs[i] for i in self.written_inputs))]

    def replayed(self, captured: Captured, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copies `inputs` into the tensors that the graphs read, and replays the graphs. Returns copies of the call's
        results, of the gradients, and of the inputs that the call writes to."""
        probes = list(map(_probe, captured.results[1][0])) if self.kind is FunctionKind.DIFFERENTIABLE else []
        return self._replayed(captured, inputs, probes)

    def _replayed(
        self, captured: Captured, inputs: list[torch.Tensor], probes: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        self.device.order()
        self.inputs.fill(inputs)
        given = tensors_in(captured.results[0])
        if self.kind is FunctionKind.DIFFERENTIABLE:
            grads, wanted = captured.results[1]
            for grad, probe in zip(grads, probes, strict=True):
                grad.copy_(probe)
            given = [*given, *_present(wanted)]
        captured.replay()
        return [tensor.detach().clone() for tensor in (*given, *(self.inputs.tensors[i] for i in self.written_inputs))]

    def gradients(
        self, inputs: list[torch.Tensor], grads: tuple[torch.Tensor | None, ...], *, create_graph: bool
    ) -> tuple[torch.Tensor | None, ...]:
        """Runs the function eagerly. Returns its gradients: one for each input tensor that requires gradients, and one
        for each parameter that the function uses. A gradient is None if no result depends on the tensor.

        Args:
            inputs: The input tensors.
            grads: The gradients of the function's differentiable results. None for a result without a gradient.
            create_graph: Whether the gradients can be differentiated again.
        """
        with graphs_disabled():
            result, _ = self._called(inputs)
        given = [pair for pair in zip(differentiable(result), grads, strict=True) if pair[1] is not None]
        outputs, weights = [output for output, _ in given], [grad for _, grad in given]
        wanted = self.wanted_of(inputs)
        found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            outputs, wanted, weights, allow_unused=True, create_graph=create_graph
        )
        return found

    def timed_eager(self, inputs: list[torch.Tensor], saved: SavedState) -> float:
        """Returns the time in s of one eager run that starts from the state `saved`. If the run did not start from this
        state, a function that counts its calls could index out of bounds."""
        copies = copies_of(inputs)

        def run() -> None:
            result = self._called(copies)
            if self.kind is FunctionKind.DIFFERENTIABLE:
                outputs = differentiable(result)
                if self._probes is None:
                    self._probes = list(map(_probe, outputs))
                _grads(outputs, self.wanted_of(copies), self._probes)

        with self.device.capture_stream():
            if self.kind is FunctionKind.DIFFERENTIABLE and self._probes is None:
                saved.restore()
                run()
            saved.restore()
            return self.device.seconds(run)

    def timed_replay(self, captured: Captured, inputs: list[torch.Tensor], saved: SavedState) -> float:
        probes = list(map(_probe, captured.results[1][0])) if self.kind is FunctionKind.DIFFERENTIABLE else []
        saved.restore()
        return self.device.seconds(lambda: self._replayed(captured, inputs, probes))


def differentiable(result: object) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(result) if tensor.requires_grad]


def reached_from(outputs: list[torch.Tensor], wanted: list[torch.Tensor]) -> list[set[int]]:
    """Returns one set for each output: the indices of the tensors in `wanted` that the output depends on.

    If an output is itself a leaf in `wanted`, its set is empty, because its gradient does not flow through the autograd
    graph.
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
    """Clears autocast's cache before and after the block.

    Autocast keeps casts of weights until the autocast context ends. If the cache were not cleared, a CUDA graph would
    reuse the casts of an earlier step although the weights have changed. An eager run would reuse the casts that a
    capture made. Within the block the cache works as in eager execution: the gradients of all uses of a weight are
    added up in the lower precision.
    """
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
    """Returns a gradient of `output`, from which a trial backward starts. The gradient has varying elements, which are
    made without a random number generator."""
    steps = torch.arange(output.numel(), device=output.device, dtype=torch.float32)
    return ((steps % 7 - 3) / 4 + 0.5).to(output.dtype).reshape(output.shape)


def _present(tensors: Iterable[torch.Tensor | None]) -> list[torch.Tensor]:
    return [tensor for tensor in tensors if tensor is not None]
