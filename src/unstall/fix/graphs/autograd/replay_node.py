"""Makes a replayed CUDA graph of a function's forward and backward passes look like one node of the autograd graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from unstall.fix.graphs.autograd.stream_warnings import is_of_capture_stream
from unstall.fix.graphs.call_arguments import Key, as_in, modes
from unstall.fix.graphs.guarded_graph import GuardedGraph, PendingBackward

_ONE_BACKWARD = "a graphed function's graph holds no backward of its backward (create_graph=True)"
_REMEDY = "use it without unstall.graphed there"
_MOVED = (
    "a tensor that a graphed function's backward needs was given other memory since the call, as by `.data =`: do that "
    "after the backward, or use the function without unstall.graphed"
)

_NOT_DIFFERENTIATED = (None,) * 5  # the arguments of `forward` before those that gradients flow to
_pointers = torch.Tensor.data_ptr


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        graph: GuardedGraph,
        pending: PendingBackward,
        called_in: Key,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        *_: torch.Tensor,
    ) -> Any:
        """Returns the results of a call that was replayed, as results of this autograd node.

        Args:
            graph: The graph that was replayed.
            pending: An object that only this node refers to. As long as the object is alive, a backward pass may
                follow.
            called_in: torch's global settings at the call, as `modes` returned them.
            inputs: The inputs of the call.
            outputs: The results of the call that require gradients.
            *_: The tensors that gradients flow to.
        """
        ctx.graph, ctx.pending, ctx.inputs = graph, pending, inputs
        ctx.modes, ctx.versions = called_in, graph.versions(inputs)
        ctx.set_materialize_grads(False)
        # Saved but never read, so that autograd raises as in eager: after a write to them, or at a second backward.
        kept = graph.static_call.kept.of(inputs, outputs)
        ctx.addresses = list(map(_pointers, kept))
        ctx.save_for_backward(*kept)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        if list(map(_pointers, ctx.saved_tensors)) != ctx.addresses:
            raise RuntimeError(_MOVED)
        if ctx.pending.done or torch.is_grad_enabled():  # after retain_graph=True, or with create_graph=True
            return _backward_of_another_run(ctx, grads)
        graph: GuardedGraph = ctx.graph
        ctx.pending.done = graph.static_call.can_run_again or not _is_kept()
        static = graph.captured.results[1][0]
        graph.static_call.device.order()
        for mine, given in zip(static, grads, strict=True):
            if given is None:
                mine.zero_()
            else:
                mine.copy_(given)
        graph.captured.graphs[1].replay()
        # A tensor gets None if no result that depends on it got a gradient: an optimizer tells None from zeros.
        reached: set[int] = set()
        reached.update(*(places for places, given in zip(graph.reached, grads, strict=True) if given is not None))
        clones = dict(zip(graph.given, graph.gradients.made(), strict=True))
        return (
            *_NOT_DIFFERENTIATED,
            *(clones[place] if place in clones and place in reached else None for place in graph.flows_to),
        )


_replay_node: Callable[..., tuple[torch.Tensor, ...]] = _Replay.apply


def _is_kept() -> bool:
    """Returns whether another backward through the same autograd graph may follow the current backward
    (`retain_graph=True`)."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def _backward_of_another_run(ctx: Any, grads: tuple[torch.Tensor | None, ...]) -> Any:
    """Runs the function again to compute gradients that the CUDA graph cannot compute, such as the gradients of a
    second backward."""
    graph: GuardedGraph = ctx.graph
    static_call = graph.static_call
    if not static_call.can_run_again:
        raise RuntimeError(f"{_ONE_BACKWARD}, and running it again would change what it writes or draws: {_REMEDY}")
    create_graph = torch.is_grad_enabled()
    with as_in(ctx.modes):
        if modes() != ctx.modes or graph.versions(ctx.inputs) != ctx.versions or not graph.guards_hold():
            raise RuntimeError(f"{_ONE_BACKWARD}, and what it relies on has changed since the call: {_REMEDY}")
        found = static_call.gradients(ctx.inputs, grads, create_graph=create_graph)
    return (*_NOT_DIFFERENTIATED, *(found[place] for place in graph.flows_to))


def replayed_through_autograd(graph: GuardedGraph, inputs: list[torch.Tensor]) -> Any:
    """Replays a CUDA graph for a call, and returns the call's result. Gradients can flow from the result to the inputs,
    and to parameters that the function uses. The caller must first copy the inputs into the tensors that the graph
    reads (`graph.fill`).

    Args:
        graph: The graph of a differentiable function.
        inputs: The input tensors of the call.
    """
    pending = PendingBackward()
    graph.pending = weakref.ref(pending)
    wanted = graph.static_call.wanted_of(inputs)
    flows_to = [wanted[place] for place in graph.flows_to]
    called_in = modes()
    graph.replay()
    graph.leave(inputs)
    with torch.no_grad():
        results = list(map(graph.outputs.copy_for_autograd, graph.differentiable()))
    # A backward runs on the stream that was current when its node was made. For each gradient that goes on to a node of
    # another stream, the host makes that stream wait: 74 times for a small BERT, which takes longer than its backward.
    at_home = (
        graph.static_call.device.on_capture_stream()
        if is_of_capture_stream(graph.static_call.differentiated)
        else nullcontext()
    )
    with torch.enable_grad(), at_home:  # if autograd is off here, the function turned it on
        outputs = _replay_node(graph, pending, called_in, inputs, results, *flows_to)
    through = {id(mine): output for mine, output in zip(graph.differentiable(), outputs, strict=True)}
    return graph.outputs.copies(inputs, through)
