"""Finds work of the autograd engine that belongs to no forward operator, such as sums of gradients. If operators were
not recorded, this work is the whole backward pass."""

from __future__ import annotations

import re

import numpy as np

from unstall.frameworks import MODULE_CALL
from unstall.locate.functions import named_functions
from unstall.locate.places import Places
from unstall.timeline.ancestry import nearest, outermost
from unstall.timeline.columns import I32, I64, Bool, HostKind
from unstall.timeline.grouping import groups
from unstall.timeline.remembered import remembered

_FORWARD = re.compile(r"[ .]forward$")
_BACKWARD = re.compile(r"torch/(_tensor|autograd/(__init__|graph))\.py: .*\b(backward|_engine_run_backward|grad)$")
_LEAF = re.compile(r"\bAccumulateGrad$")


@remembered
def models(places: Places) -> I32:
    """Finds, for each row of `timeline.stacks` (a frame), the `forward` method of the model that runs this frame.

    Returns an array with one element for each frame: the row of the `forward` method's frame in `timeline.stacks`, or
    -1 if no model runs the frame. A `forward` method counts if the user wrote it and if it runs inside a call of a
    torch module. If several `forward` methods of this kind are on the stack, only the outermost counts, because its
    module contains the modules of the others.
    """
    timeline, stacks = places.timeline, places.timeline.stacks
    called = nearest(stacks.parent, named_functions(timeline, MODULE_CALL)[stacks.line]) >= 0
    forward = places.is_user_frame & named_functions(timeline, _FORWARD)[stacks.line]
    return outermost(stacks.parent, forward & called, np.zeros(len(stacks), dtype=np.bool_))


def of_the_engine(places: Places, chosen: Bool, function: Bool) -> Bool:
    """Returns a mask of the host events that belong to a function's backward pass, but not to a backward operator.

    These events are work of the autograd engine, for example sums of gradients. Work that the engine does between two
    backward operators of the function belongs to the function. There is one exception: the accumulation of gradients
    into `.grad` does not belong to the function, because these gradients are the result of the function's backward
    pass. If the run has no known backward operators, the whole backward pass belongs to the model that ran last before
    the backward pass.

    Args:
        places: The source places of the run's host events.
        chosen: A mask of the host events that belong to the function. The mask includes the backward operators of the
            function's operators.
        function: A mask of the rows of `timeline.stacks` whose frame runs the function itself.
    """
    timeline, host = places.timeline, places.timeline.host
    found = np.zeros(len(host), dtype=np.bool_)
    stack = np.maximum(host.stack, 0)
    stacks = timeline.stacks
    if not len(stacks):
        return found
    in_backward = nearest(stacks.parent, named_functions(timeline, _BACKWARD)[stacks.line]) >= 0
    backward = (host.stack >= 0) & in_backward[stack]
    known = bool((host.forward >= 0).any())
    for _, rows in groups(host.thread):
        mine = rows[np.argsort(host.start[rows], kind="stable")]
        if known:
            found[mine] = _between(places, mine, chosen) & (backward | (host.stack < 0))[mine]
        elif backward[mine[host.kind[mine] == HostKind.LAUNCH]].all():
            found[mine] = backward[mine] & _of_the_last_model(places, mine, function)
    return found


def _between(places: Places, mine: I64, chosen: Bool) -> Bool:
    """Returns a mask over `mine`. `mine` are the host rows of one thread, in order of time.

    Only events without a forward operator are selected. An event is selected only if two other events are in `chosen`:
    the last event with a forward operator before this event, and the first event with a forward operator after this
    event. Accumulation of gradients into `.grad` is not selected.
    """
    timeline, host = places.timeline, places.timeline.host
    linked = host.forward[mine] >= 0
    ends = np.flatnonzero(linked)
    if not len(ends):
        return linked
    at = np.searchsorted(ends, np.arange(len(mine)))
    before, after = mine[ends[np.maximum(at - 1, 0)]], mine[ends[np.minimum(at, len(ends) - 1)]]
    inside = ~linked & (at > 0) & (at < len(ends)) & chosen[before] & chosen[after]
    inside &= np.isin(host.kind[mine], (HostKind.OP, HostKind.LAUNCH)) & (host.stack[before] == host.stack[after])
    top = places.top_op[mine]
    leaf = np.array([_LEAF.search(name) is not None for name in timeline.strings], dtype=np.bool_)
    found: Bool = inside & ~((top >= 0) & leaf[host.name[np.maximum(top, 0)]])
    return found


def _of_the_last_model(places: Places, mine: I64, function: Bool) -> Bool:
    """Returns a mask over `mine`. `mine` are the host rows of one autograd thread, in order of time.

    For each event, finds the model that was the last to launch work before the event. The event is selected if the
    frame of this model's `forward` method is in `function`, which is a mask of the rows of `timeline.stacks`.
    """
    host = places.timeline.host
    launches = np.flatnonzero((host.kind == HostKind.LAUNCH) & (host.stack >= 0))
    model = models(places)[host.stack[launches]]
    launches, model = launches[model >= 0], model[model >= 0]
    order = np.argsort(host.start[launches], kind="stable")
    at = np.searchsorted(host.start[launches[order]], host.start[mine], side="right") - 1
    found: Bool = (at >= 0) & function[model[order[np.maximum(at, 0)]]] if len(order) else np.zeros(len(mine), np.bool_)
    return found
