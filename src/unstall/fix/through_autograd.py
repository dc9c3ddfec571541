"""A graph's forward and backward as one function of autograd's."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from unstall.fix.ready import Ready


class Awaited:
    """A forward that saved tensors in a graph's memory: another replay before its backward would overwrite them."""

    def __init__(self) -> None:
        self.done = False


class _Replay(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, ready: Ready, awaited: Awaited, count: int, *tensors: torch.Tensor) -> Any:
        """`tensors`: the call's inputs, `count` of them, then the tensors from outside that gradients flow to."""
        inputs = list(tensors[:count])
        ready.replay(inputs)
        ready.leave(inputs)
        ctx.ready, ctx.awaited, ctx.inputs, ctx.needs = ready, awaited, inputs, ctx.needs_input_grad[3:]
        ctx.set_materialize_grads(False)
        return tuple(tensor.detach().clone() for tensor in ready.differentiable())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        if ctx.awaited.done or torch.is_grad_enabled():  # retain_graph=True, create_graph=True
            return _backward_of_another_run(ctx, grads)
        ready: Ready = ctx.ready
        ctx.awaited.done = True
        static, results = ready.captured.results[1]
        ready.subject.device.order()
        for mine, given in zip(static, grads, strict=True):
            if given is None:
                mine.zero_()
            else:
                mine.copy_(given)
        ready.captured.graphs[1].replay()
        # Of what no gradient came in for, none comes out: an optimizer tells none from zeros.
        reached = set().union(
            *(places for places, given in zip(ready.reached, grads, strict=True) if given is not None)
        )
        wanted = [
            None if grad is None or place not in reached else grad.detach().clone()
            for place, grad in enumerate(results)
        ]
        found = iter(wanted)
        to_inputs = [next(found) if buffer.requires_grad else None for buffer in ready.subject.buffers.tensors]
        return (None, None, None, *to_inputs, *found)


def _backward_of_another_run(ctx: Any, grads: tuple[torch.Tensor | None, ...]) -> Any:
    """What a graph cannot give, which holds one backward, and none of a backward: the function is run once more."""
    subject = ctx.ready.subject
    if subject.seen.written or subject.written_inputs or subject.seen.random:
        raise RuntimeError(
            "a graphed function's graph holds one backward (retain_graph=True) and none of its backward "
            "(create_graph=True), and running it again would change what it writes or draws: use it without "
            "unstall.graphed there"
        )
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        wanted, found = subject.gradients(ctx.inputs, grads, create_graph=create_graph)
    places = {id(tensor): grad for tensor, grad in zip(wanted, found, strict=True)}
    return (None, None, None, *(places.get(id(tensor)) for tensor in (*ctx.inputs, *subject.differentiated)))


def served_through_autograd(ready: Ready, inputs: list[torch.Tensor]) -> Any:
    """The result of a call, with gradients to its inputs and to the tensors from outside."""
    awaited = Awaited()
    ready.awaited = weakref.ref(awaited)
    outputs = _Replay.apply(ready, awaited, len(inputs), *inputs, *ready.subject.differentiated)
    through = {id(mine): output for mine, output in zip(ready.differentiable(), outputs, strict=True)}
    return ready.outputs.copies(inputs, through)
