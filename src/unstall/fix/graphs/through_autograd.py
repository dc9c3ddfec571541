"""A graph's forward and backward as one function of autograd's."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from unstall.fix.graphs.ready import Ready
from unstall.fix.graphs.signature import as_in, modes

_ONE_BACKWARD = "a graphed function's graph holds no backward of its backward (create_graph=True)"
_REMEDY = "use it without unstall.graphed there"
_MOVED = (
    "a tensor that a graphed function's backward needs was given other memory since the call, as by `.data =`: do that "
    "after the backward, or use the function without unstall.graphed"
)

_pointers = torch.Tensor.data_ptr


class Awaited:
    """A forward that saved tensors in a graph's memory: another replay before its backward would overwrite them."""

    def __init__(self) -> None:
        self.done = False


class _Replay(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        ready: Ready,
        awaited: Awaited,
        called_in: tuple[Any, ...],
        inputs: list[torch.Tensor],
        *_: torch.Tensor,
    ) -> Any:
        """`inputs` are the call's; then come the tensors that gradients flow to."""
        ready.replay()
        ready.leave(inputs)
        ctx.ready, ctx.awaited, ctx.inputs = ready, awaited, inputs
        ctx.modes, ctx.versions = called_in, ready.versions(inputs)
        ctx.set_materialize_grads(False)
        outputs = list(map(ready.outputs.copy_for_autograd, ready.differentiable()))
        # Not to be read, but so that autograd itself raises where eager's would: after a write, or a second backward.
        kept = ready.subject.kept.of(inputs, outputs)
        ctx.addresses = list(map(_pointers, kept))
        ctx.save_for_backward(*kept)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        if list(map(_pointers, ctx.saved_tensors)) != ctx.addresses:
            raise RuntimeError(_MOVED)
        if ctx.awaited.done or torch.is_grad_enabled():  # after retain_graph=True, or with create_graph=True
            return _backward_of_another_run(ctx, grads)
        ready: Ready = ctx.ready
        ctx.awaited.done = ready.subject.can_run_again or not _is_kept()
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
        found = [(results[place], place in reached) for place in ready.flows_to]
        return (
            None,
            None,
            None,
            None,
            *(grad.detach().clone() if comes and grad is not None else None for grad, comes in found),
        )


def _is_kept() -> bool:
    """Whether the backward that runs now may be followed by another one."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def _backward_of_another_run(ctx: Any, grads: tuple[torch.Tensor | None, ...]) -> Any:
    """What its graph cannot give, as a backward of its backward: the function is run once more."""
    ready: Ready = ctx.ready
    subject = ready.subject
    if not subject.can_run_again:
        raise RuntimeError(f"{_ONE_BACKWARD}, and running it again would change what it writes or draws: {_REMEDY}")
    create_graph = torch.is_grad_enabled()
    with as_in(ctx.modes):
        if modes() != ctx.modes or ready.versions(ctx.inputs) != ctx.versions or not ready.holds():
            raise RuntimeError(f"{_ONE_BACKWARD}, and what it relies on has changed since the call: {_REMEDY}")
        found = subject.gradients(ctx.inputs, grads, create_graph=create_graph)
    return (None, None, None, None, *(found[place] for place in ready.flows_to))


def served_through_autograd(ready: Ready, inputs: list[torch.Tensor]) -> Any:
    """The result of a call whose inputs the graph was filled with, with gradients to them and to the tensors from
    outside."""
    awaited = Awaited()
    ready.awaited = weakref.ref(awaited)
    wanted = ready.subject.wanted_of(inputs)
    called_in = modes()
    with torch.enable_grad():  # where it is off, the function has turned it on
        outputs = _Replay.apply(ready, awaited, called_in, inputs, *(wanted[place] for place in ready.flows_to))
    through = {id(mine): output for mine, output in zip(ready.differentiable(), outputs, strict=True)}
    return ready.outputs.copies(inputs, through)
