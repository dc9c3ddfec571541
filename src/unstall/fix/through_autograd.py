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
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True asks for gradients of a graphed function's gradients, which its graph does not "
                "have: use it without unstall.graphed there"
            )
        if ctx.awaited.done:
            raise RuntimeError(
                "a graphed function's backward ran a second time: its graph holds one. Call the function again, or "
                "use it without unstall.graphed where retain_graph=True is needed"
            )
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


def served_through_autograd(ready: Ready, inputs: list[torch.Tensor]) -> Any:
    """The result of a call, with gradients to its inputs and to the tensors from outside."""
    awaited = Awaited()
    ready.awaited = weakref.ref(awaited)
    outputs = _Replay.apply(ready, awaited, len(inputs), *inputs, *ready.subject.differentiated)
    through = {id(mine): output for mine, output in zip(ready.differentiable(), outputs, strict=True)}
    return ready.outputs.copies(inputs, through)
