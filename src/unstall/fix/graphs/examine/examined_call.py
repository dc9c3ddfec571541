"""Runs one call eagerly and finds all reasons why a graph of the call is not possible."""

from __future__ import annotations

import dataclasses
import enum
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from unstall.fix.graphs.autograd.nodes import is_leaf, node_of
from unstall.fix.graphs.autograd.stream_warnings import no_stream_warnings, note_living_nodes, silence_nodes_of
from unstall.fix.graphs.call_arguments import CallArguments, arguments_of
from unstall.fix.graphs.capture.capture_device import CaptureDevice
from unstall.fix.graphs.disabled import graphs_disabled
from unstall.fix.graphs.examine.observed_call import ObservedCall
from unstall.fix.graphs.examine.observing import observed
from unstall.fix.graphs.examine.reachable_state import ReachableState
from unstall.fix.graphs.refusals import Refusal, Refused, raising_place
from unstall.fix.graphs.saved_state import SavedState
from unstall.fix.graphs.static_call import FunctionKind, own_autocast_cache
from unstall.fix.tensors.nesting import map_tensors, tensors_in
from unstall.fix.tensors.storages import is_plain, storage_of
from unstall.guest.step_replay import observed_boundaries

_SIMPLE = (bool, int, float, complex, str, bytes, type(None), enum.Enum, type, slice, range)
_SIMPLE_OF_TORCH = (torch.dtype, torch.device, torch.Size, torch.memory_format, torch.layout)


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found out about one call of a function that ran eagerly.

    Attributes:
        seen: The reads, writes and side effects of the call.
        kind: What the function does: it only returns a result, it changes tensors, or gradients flow through it.
        changed: Descriptions of the Python-side state that the call changed.
        reachable: The Python-side state that the call's code reads, with the values that this state had after the call.
    """

    seen: ObservedCall
    kind: FunctionKind
    changed: list[str]
    reachable: ReachableState


@dataclass(frozen=True, slots=True)
class _Before:
    """State before a call, which is compared with the state after the call.

    Attributes:
        grads: The `.grad` of each input tensor.
        addresses: Tensors with the addresses of their memory.
        trained: Tensors with their `requires_grad`.
    """

    grads: list[torch.Tensor | None]
    addresses: list[tuple[torch.Tensor, int]]
    trained: list[tuple[torch.Tensor, bool]]


def examined(device: CaptureDevice, function: Callable[..., Any], call: CallArguments) -> tuple[Any, Examined]:
    """Runs a call eagerly. Finds what a CUDA graph of the call would need, and why a graph may not be possible.

    The call runs on the stream on which graphs are captured. A capture can then use the workspaces that the call
    allocates.

    Args:
        device: The device.
        function: The function that is called.
        call: The arguments of the call.

    Returns:
        `(result, found)`: the result of the call, and what was found out.
    """
    reachable = ReachableState([function, *call.others], of_host_tensors=device.type != "cpu")
    before = _Before(
        [tensor.grad if is_leaf(tensor) else None for tensor in call.tensors],
        [(tensor, tensor.data_ptr()) for tensor in (*reachable.tensors, *call.tensors) if is_plain(tensor)],
        [(tensor, tensor.requires_grad) for tensor in (*reachable.tensors, *call.tensors) if is_leaf(tensor)],
    )
    note_living_nodes((*reachable.tensors, *call.tensors))
    grads = {id(tensor): tensor.grad for tensor in reachable.tensors if is_leaf(tensor)}
    with (
        device.capture_stream(),
        own_autocast_cache(),
        graphs_disabled(),
        no_stream_warnings(),
        observed_boundaries() as steps,
    ):
        result, seen = observed(lambda: function(*call.args, **call.kwargs), call.tensors, device)
    seen.steps = steps
    tensors = tensors_in(result)
    device.hand_over(tensors)
    seen.note_grads(grads)
    before_it = {*map(id, seen.externals), *map(id, call.tensors), *reachable.known}
    made = [tensor for tensor in tensors if id(tensor) not in before_it]
    kind = _kind(made, seen)
    if (
        kind is FunctionKind.STEP
    ):  # its backward has run; the rest of the autograd graph would keep AccumulateGrad nodes alive
        used_up = {id(tensor) for tensor in made if node_of(tensor) is not None}
        result = map_tensors(result, lambda tensor: tensor.detach() if id(tensor) in used_up else tensor)
    limited = reachable.limited_to(seen.names)
    changed = limited.changes(first=True)
    if seen.moves or any(tensor.data_ptr() != address for tensor, address in before.addresses):
        changed.append("a tensor lies in other memory, as after `.data =`")
    if any(tensor.requires_grad != wanted for tensor, wanted in before.trained):
        changed.append("a tensor requires gradients or does so no more, as after requires_grad_()")
    if seen.warns:
        changed.append(f"it warns: {seen.warns.splitlines()[0]}")
    silence_nodes_of(tensors_in(result))
    reasons = [*_of_arguments(device, call, before), *_of_state(limited, call, kind)]
    may_run_again = not changed and not reasons
    reasons += [*_of_result(device, result, call, reachable), *_of_autograd(made, call, seen, kind)]
    if seen.only_waits and may_run_again:
        own = SavedState([], [], [tensor for tensor in (*reachable.tensors, *seen.leaves) if is_leaf(tensor)])
        seen = _seen_in_a_capture(device, function, call, seen) or seen
        own.restore_grads()  # gradients made in the capture have no values
    if not seen.refusals:
        seen.refusals += reasons
    if not seen.refusals and not seen.launches:
        seen.refusals.append(Refusal("it puts no work on the device"))
    after = ReachableState([function, *call.others, *seen.scopes], of_host_tensors=device.type != "cpu").limited_to(
        seen.names
    )
    return result, Examined(seen, kind, changed, after)


def _kind(results: list[torch.Tensor], seen: ObservedCall) -> FunctionKind:
    """Returns the kind of the function, which depends on the effects of the call. `results` are the result tensors that
    the call itself made."""
    changes = bool(seen.written or seen.written_inputs)
    grads = bool(seen.leaves)
    if any(node_of(tensor) is not None for tensor in results) and not (seen.backward_ran and (changes or grads)):
        return FunctionKind.DIFFERENTIABLE
    return FunctionKind.STEP if changes or (seen.backward_ran and grads) else FunctionKind.PURE


def _of_arguments(device: CaptureDevice, call: CallArguments, before: _Before) -> list[Refusal]:
    found: list[Refusal] = []
    if any(tensor.device.type != device.type for tensor in call.tensors):
        found.append(Refusal("an argument is a CPU tensor, and a graph would keep its value", None, "move it before"))
    try:
        now = arguments_of(call.args, call.kwargs)
        same = now.key == call.key and all(new is old for new, old in zip(now.tensors, call.tensors, strict=True))
    except Refused:
        same = False
    if not same:
        reason = "it changes a container or a shape that was passed in, or a mode of torch's"
        found.append(Refusal(reason, None, "return what is new instead"))
    elif any(t.grad is not grad for t, grad in zip(call.tensors, before.grads, strict=True) if is_leaf(t)):
        found.append(Refusal("it leaves a gradient in an argument", None, "return what torch.autograd.grad gives"))
    return found


def _of_state(reachable: ReachableState, call: CallArguments, kind: FunctionKind) -> list[Refusal]:
    """Returns the reasons against a graph that come from Python-side state. `reachable` is all state that the code
    could read."""
    if not reachable.complete:
        return [Refusal("it reaches more Python values than can be checked before each call")]
    found: list[Refusal] = []
    storages = set(map(storage_of, call.tensors))
    shared = [label for tensor, label in reachable.labelled() if is_plain(tensor) and storage_of(tensor) in storages]
    if shared:
        reason = f"an argument shares memory with {shared[0]}, which it reads beside its arguments"
        found.append(Refusal(reason, None, "pass a clone"))
    found += [
        Refusal(f"it may draw from the iterator {name}", None, "pass in what it gives")
        for name in reachable.iterators()
    ]
    if kind is FunctionKind.DIFFERENTIABLE and reachable.hooks_of_backward:
        reason = f"{reachable.hooks_of_backward[0]} would not run in a graph's backward"
        found.append(Refusal(reason, None, "graph the whole training step"))
    return found


def _of_result(device: CaptureDevice, result: object, call: CallArguments, reachable: ReachableState) -> list[Refusal]:
    if any(tensor.device.type != device.type for tensor in tensors_in(result)):
        return [Refusal("its result holds a CPU tensor", None, "return tensors of the device")]
    dtypes: dict[int, set[torch.dtype]] = {}
    for tensor in call.tensors:
        dtypes.setdefault(storage_of(tensor), set()).add(tensor.dtype)
    views = [tensor for tensor in tensors_in(result) if is_plain(tensor) and storage_of(tensor) in dtypes]
    if any(dtypes[storage_of(view)] != {view.dtype} for view in views):
        reason = "its result is an argument's memory read as another type"
        return [Refusal(reason, None, "return a clone, or take the view after the call")]
    other = _stranger(result, reachable)
    if other is None:
        return []
    reason = f"its result holds a {type(other).__name__}, which may hold tensors"
    return [Refusal(reason, None, "return tensors, in tuples, lists, dicts or dataclasses")]


def _of_autograd(
    made: list[torch.Tensor], call: CallArguments, seen: ObservedCall, kind: FunctionKind
) -> list[Refusal]:
    """Returns the reasons against a graph that come from autograd.

    In eager execution, autograd knows that an in-place write to one view changes other views. Autograd does not know
    this for the results of a CUDA graph, because autograd sees the results as unrelated tensors.
    """
    outside = set(map(storage_of, seen.externals))
    taken = outside.union(map(storage_of, call.tensors))
    for tensor in {id(tensor): tensor for tensor in made if tensor.requires_grad}.values():
        if node_of(tensor) is None and storage_of(tensor) not in outside:
            reason = "its result requires gradients as a new leaf does, or a view that is made where autograd is off"
            return [Refusal(reason, None, "call requires_grad_(), or take the view, after the call")]
        if kind is FunctionKind.STEP:  # its results have no graph left
            continue
        if node_of(tensor) is not None and storage_of(tensor) in taken:
            reason = "gradients flow through a result that is a view of an argument, of another result, or of a "
            return [Refusal(reason + "tensor from outside", None, "return a clone, or take the view after the call")]
        taken.add(storage_of(tensor))
    return []


def _stranger(value: object, reachable: ReachableState) -> object:
    """Searches a result for objects that a graph could not reproduce. Returns the first such object, or None if there
    is none. Such an object was made by the call, and is neither a tensor, a plain value nor a container."""
    if isinstance(value, (torch.Tensor, *_SIMPLE, *_SIMPLE_OF_TORCH)) or id(value) in reachable.known:
        return None
    items: list[object]
    if isinstance(value, Mapping):
        items = list(value.values())
    elif isinstance(value, (tuple, list)):
        items = list(value)
    elif isinstance(value, (set, frozenset)):
        return None if all(isinstance(item, _SIMPLE) for item in value) else value
    elif dataclasses.is_dataclass(value):
        items = [getattr(value, each.name) for each in dataclasses.fields(value)]
    else:
        return value
    own = set(map(id, items))
    beside = [] if isinstance(value, UserDict) else getattr(value, "__dict__", {}).values()
    for held in beside:
        if id(held) not in own and (isinstance(held, torch.Tensor) or _stranger(held, reachable) is not None):
            return value
    return next((each for each in (_stranger(item, reachable) for item in items) if each is not None), None)


def _seen_in_a_capture(
    device: CaptureDevice, function: Callable[..., Any], call: CallArguments, seen: ObservedCall
) -> ObservedCall | None:
    """Observes a call again, within a capture. Called if waits for the device are the only reasons against a graph,
    because some functions skip such waits while they are captured.

    Returns None if the function does not check whether it is captured. Also returns None if the function waits even in
    the capture. The capture then stops at its first wait. All waits that the function has before this wait are removed
    from `seen.refusals`, because the function skipped them in the capture.
    """
    if not seen.asks_whether_captured:
        return None
    try:
        with own_autocast_cache(), graphs_disabled():
            graph, (_, dry), _ = device.capture(
                device.new_pool(),
                [device.generator(), *seen.generators],
                lambda: observed(lambda: function(*call.args, **call.kwargs), call.tensors, device, stops=True),
            )
    except (Refused, RuntimeError) as error:
        stopped = error.refusals[0].place if isinstance(error, Refused) else raising_place(error)
        first = next((at for at, refusal in enumerate(seen.refusals) if refusal.place == stopped), 0)
        del seen.refusals[:first]
        return None
    graph.reset()
    dry.random, dry.steps = seen.random, seen.steps
    dry.uncertain = seen.uncertain  # from the eager run
    grads = {id(leaf): grad for leaf, grad in zip(seen.leaves, seen.entry_grads, strict=True)}
    dry.entry_grads = [grads.get(id(leaf)) for leaf in dry.leaves]
    dry.left_alone = seen.left_alone
    dry.names = None if dry.names is None or seen.names is None else dry.names | seen.names
    dry.scopes += seen.scopes
    return dry
