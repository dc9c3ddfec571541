"""Work of autograd's engine that belongs to no forward operator, such as sums of gradients. If operators were not
recorded, that is the whole backward pass."""

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
    """Returns, for each row of `timeline.stacks` (a frame of a call stack), the row of the model's `forward`, or -1.

    The model's `forward` is the outermost `forward` around the frame that the user wrote and that a torch module's call
    runs. The result is -1 for frames outside of a model.
    """
    timeline, stacks = places.timeline, places.timeline.stacks
    called = nearest(stacks.parent, named_functions(timeline, MODULE_CALL)[stacks.line]) >= 0
    forward = places.is_user_frame & named_functions(timeline, _FORWARD)[stacks.line]
    return outermost(stacks.parent, forward & called, np.zeros(len(stacks), dtype=np.bool_))


def of_the_engine(places: Places, chosen: Bool, function: Bool) -> Bool:
    """Returns a mask of the host events that autograd's engine runs by itself in the backward pass of a function.

    Between two backward operators of the function, the engine's work belongs to the function. Adding gradients to
    `.grad` does not, because these gradients leave the function. If the run has no known backward operators, the
    backward pass belongs to the model that ran last.

    Args:
        places: The source places of the run's host events.
        chosen: A mask of the host events that belong to the function, including the backward operators of its
            operators.
        function: A mask of the rows of `timeline.stacks` (frames) that are the function itself.
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
    """Returns a mask over `mine`, the host rows of one thread in order of time.

    An event is selected if it has no forward operator, and the events before and after it that have a forward operator
    are both in `chosen`.
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
    """Returns a mask over `mine`, host rows of one autograd thread.

    An event is selected if `function` holds for the model that launched last before the event.
    """
    host = places.timeline.host
    launches = np.flatnonzero((host.kind == HostKind.LAUNCH) & (host.stack >= 0))
    model = models(places)[host.stack[launches]]
    launches, model = launches[model >= 0], model[model >= 0]
    order = np.argsort(host.start[launches], kind="stable")
    at = np.searchsorted(host.start[launches[order]], host.start[mine], side="right") - 1
    found: Bool = (at >= 0) & function[model[order[np.maximum(at, 0)]]] if len(order) else np.zeros(len(mine), np.bool_)
    return found
