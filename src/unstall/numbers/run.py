"""Runs a function in a given way (for example on another device). Stores some elements of the
function's arguments, of the results of its operators, and of the function's results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from unstall.fix.tensors.nesting import tensors_in
from unstall.numbers.outside import Outside
from unstall.numbers.streams import Streams, one_by_one, wait_for_device
from unstall.numbers.ways import Way, numbers_in
from unstall.rounding.noise import Noise
from unstall.rounding.operators import NOWHERE, Call, Operators, as_it_is
from unstall.rounding.samples import ENDS, Kept, Ran

_SEED = 20  # of the random numbers of the function, and of the gradients of its results


def run(
    taken: Way,
    noise: Noise | None = None,
    *,
    new: Callable[[], Kept] = Kept,
    streams: Streams | None = None,
    outside: Outside | None = None,
    one_at_a_time: bool = False,
) -> Ran:
    """Runs a function once. Returns some elements of each of its tensors.

    If a result needs gradients and the function has not run the backward pass itself, also runs the
    backward pass. The gradients of the arguments are stored in both cases.

    Args:
        taken: The function, its arguments, and how the function runs.
        noise: Adds random errors to the results of operators. If None, no errors are added.
        new: Makes a store of elements. Is called three times: for the arguments, the operators and
            the results.
        streams: Notes the streams on which operators run.
        outside: Refuses two kinds of operators: those that use weights from outside of the
            arguments, and those that change tensors from outside of the arguments.
        one_at_a_time: Whether each operator waits for the device, so that streams do not overlap.
    """
    given = list(_given_of(taken))
    before, operators, ends = new(), new(), new()
    for name, tensor in given:
        before.keep("given", name, NOWHERE, tensor, ENDS)
    call: Call = noise.call if noise is not None else taken.call or as_it_is
    if one_at_a_time or taken.one_at_a_time:
        call = one_by_one(call)
    if outside is not None:
        outside.note([tensor for _, tensor in given])
        call = outside.refusing(call)
    if streams is not None:
        call = streams.noting(call)
    wait_for_device()  # arguments are ready, on whatever stream they are used
    results = called(taken, Operators(operators.of_operator, call) if taken.operators else None)
    for number, tensor in enumerate(results, 1):
        ends.keep("result", str(number), NOWHERE, tensor, ENDS)
    for name, tensor in given:
        if tensor.is_leaf and tensor.grad is not None:
            ends.keep("gradient", name, NOWHERE, tensor.grad, ENDS)
        ends.keep("after", name, NOWHERE, tensor, ENDS)
    wait_for_device()  # elements were kept on the streams of their operators
    return Ran(
        {each.name: each for each in before.seen()},
        tuple(operators.seen()),
        {(each.kind, each.name): each for each in ends.seen()},
    )


def called(
    taken: Way, watch: Operators | None, gradient: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> list[torch.Tensor]:
    """Calls a function, and returns the tensors in its results.

    If a result needs gradients and the function has not run the backward pass itself, also runs the backward pass.

    Args:
        taken: The function, its arguments, and how the function runs.
        watch: Observes the operators. None if no one needs to observe them.
        gradient: Returns the gradient of a result. If None, gradients are random, but equal in all runs.
    """
    given = list(_given_of(taken))
    for _, tensor in given:
        tensor.grad = None
    torch.manual_seed(_SEED)
    with taken.around(watch):
        returned = taken.fn(*taken.inputs)
    results = [*tensors_in(returned), *numbers_in(returned)]
    differentiable = [each for each in results if each.requires_grad and each.is_floating_point()]
    if differentiable and all(tensor.grad is None for _, tensor in given if tensor.is_leaf):
        seeds = [gradient(each) if gradient else _gradient(each, taken.part) for each in differentiable]
        with taken.around(watch):
            torch.autograd.backward(differentiable, seeds)
    return results


def _given_of(taken: Way) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields `(name, tensor)` for each tensor in a function's arguments, in its modules, and in the
    values that the function holds.
    """
    if taken.module is not None:
        yield from _tensors_of(taken.module, "")
    alone = taken.module is None and not taken.held
    values = [(f"input {number}", each) for number, each in enumerate(taken.inputs, 1)]
    values += [(f"held {number}", each) for number, each in enumerate(taken.held, 1)]
    for name, each in values:
        for module in taken.modules_in(each):
            yield from _tensors_of(module, "" if alone else f"{name}.")
        if not isinstance(each, torch.nn.Module):
            tensors = tensors_in(each)
            for at, tensor in enumerate(tensors, 1):
                yield name + (f", tensor {at}" if len(tensors) > 1 else ""), tensor


def _tensors_of(module: torch.nn.Module, before: str) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        yield before + name, tensor


def _gradient(of: torch.Tensor, part: tuple[int, int] | None) -> torch.Tensor:
    """Returns a random gradient for the result `of`. It depends only on the result's shape, not on
    its type and device.

    If the function runs only a part of a batch, makes the gradient of the whole batch, and returns
    the rows of this part.
    """
    chance = torch.Generator("cpu").manual_seed(_SEED)
    shape = tuple(of.shape)
    if part is not None and shape:
        shape = (shape[0] * part[1] // part[0], *shape[1:])
    drawn = torch.randn(shape, dtype=torch.float64, device="cpu", generator=chance).bfloat16()  # exact in all types
    return (drawn[: len(of)] if shape else drawn).to(device=of.device, dtype=of.dtype)
