"""Finds work of the autograd engine that belongs to no forward operator, such as sums of gradients.
In a run without recorded operators, the whole backward pass is such work.
"""

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
_NOT_TORCHS = re.compile(r"^(?!(?:.*/)?torch/).*[ .]forward$")
_TORCHS_OWN = re.compile(r"torch/nn/modules/(?!module\.py|loss\.py)\w+\.py: .*\bforward$")
_BACKWARD = re.compile(r"torch/(_tensor|autograd/(__init__|graph))\.py: .*\b(backward|_engine_run_backward|grad)$")
_LEAF = re.compile(r"\bAccumulateGrad$")


@remembered
def models(places: Places) -> I32:
    """Returns, for each frame (a row of `timeline.stacks`), the `forward` method of the model that
    runs the frame.

    Returns an array with one element for each frame: the row of the `forward` method's frame in
    `timeline.stacks`, or -1 if no model runs the frame. A `forward` method counts if it runs inside
    a call of a torch module, and if the user wrote it, or if it is of a module of `torch.nn` such as
    Sequential that is no part of another model. Those of losses and of wrappers such as
    DistributedDataParallel do not count. If several `forward` methods are on the stack, only the
    outermost counts, because its module contains the modules of the others.
    """
    timeline, stacks = places.timeline, places.timeline.stacks
    called = nearest(stacks.parent, named_functions(timeline, MODULE_CALL)[stacks.line]) >= 0
    forward = places.is_user_frame & named_functions(timeline, _FORWARD)[stacks.line]
    torchs = named_functions(timeline, _TORCHS_OWN)[stacks.line]
    others = named_functions(timeline, _NOT_TORCHS)[stacks.line]  # whether or not the recording has the call of each
    torchs &= nearest(stacks.parent, others) < 0
    return outermost(stacks.parent, (forward | torchs) & called, np.zeros(len(stacks), dtype=np.bool_))


def of_the_engine(places: Places, chosen: Bool, function: Bool) -> Bool:
    """Returns a mask of the host events that belong to the backward pass of one function, but not
    to a backward operator.

    These events are work of the autograd engine, for example sums of gradients. Work that the
    engine does between two backward operators of the function belongs to the function. There is one
    exception: the accumulation of gradients into `.grad` does not belong to the function, because
    these gradients are the result of the function's backward pass. If the run has no known backward
    operators, the whole backward pass belongs to the model that ran last before the backward pass.

    Args:
        places: The place in the source of each host event.
        chosen: A mask of the host events that belong to the function, with the backward operators
            of its operators.
        function: A mask of the frames (rows of `timeline.stacks`) that are frames of the function
            itself.
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
    """Returns a mask of the rows in `mine`: whether the event belongs to the function, as work of
    the autograd engine between two backward operators of the function.

    An event is selected if it has no forward operator, and if two other events are both in
    `chosen`: the last event before it that has a forward operator, and the first event after it
    that has one. Accumulation of gradients into `.grad` is not selected.

    Args:
        places: The place in the source of each host event.
        mine: The rows in `timeline.host` of the events of one thread, in order of time.
        chosen: A mask of the host events that belong to the function.
    """
    host = places.timeline.host
    linked = host.forward[mine] >= 0
    ends = np.flatnonzero(linked)
    if not len(ends):
        return linked
    at = np.searchsorted(ends, np.arange(len(mine)))
    before, after = mine[ends[np.maximum(at - 1, 0)]], mine[ends[np.minimum(at, len(ends) - 1)]]
    inside = ~linked & (at > 0) & (at < len(ends)) & chosen[before] & chosen[after]
    inside &= np.isin(host.kind[mine], (HostKind.OP, HostKind.LAUNCH, HostKind.MEMSET)) & (
        host.stack[before] == host.stack[after]
    )
    found: Bool = inside & ~accumulates(places)[mine]
    return found


@remembered
def accumulates(places: Places) -> Bool:
    """Returns a mask of the host events in which a backward pass adds gradients to `.grad`."""
    host = places.timeline.host
    leaf = np.array([_LEAF.search(name) is not None for name in places.timeline.strings], dtype=np.bool_)
    found: Bool = (places.top_op >= 0) & leaf[host.name[np.maximum(places.top_op, 0)]]
    return found


def _of_the_last_model(places: Places, mine: I64, function: Bool) -> Bool:
    """Returns a mask of the rows in `mine`: whether the model that last launched work before the
    event runs in the function.

    Args:
        places: The place in the source of each host event.
        mine: The rows in `timeline.host` of the events of one autograd thread, in order of time.
        function: A mask of the frames (rows of `timeline.stacks`). An event is selected if the
            frame of the model's `forward` method is in the mask.
    """
    host = places.timeline.host
    launches = np.flatnonzero((host.kind == HostKind.LAUNCH) & (host.stack >= 0))
    model = models(places)[host.stack[launches]]
    launches, model = launches[model >= 0], model[model >= 0]
    order = np.argsort(host.start[launches], kind="stable")
    at = np.searchsorted(host.start[launches[order]], host.start[mine], side="right") - 1
    found: Bool = (at >= 0) & function[model[order[np.maximum(at, 0)]]] if len(order) else np.zeros(len(mine), np.bool_)
    return found
