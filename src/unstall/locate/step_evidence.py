"""Decides whether a part of a run that repeats is a step, or only a part of a step. For example,
layers are parts of a step, and layers repeat, too.

The evidence, strongest first:

- repetitions that only copy data, or only print a tensor;
- one call that encloses several repetitions;
- the modules that each repetition calls;
- a forward and a backward pass, or an embedding, in each repetition;
- an annotation that encloses several repetitions;
- the launches before, after and between the repetitions, if only launches were recorded.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from unstall.locate.kinds import named
from unstall.locate.step_spans import ALIKE, LEAST_PERIODS
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I64, Bool, DeviceKind, HostKind, Timeline


class Nature(Enum):
    """What the repetitions in a run are: steps, or parts of steps."""

    STEP = "a step"
    PART = "a part of a step"
    UNCLEAR = "something around several of them speaks against steps"
    UNKNOWN = "nothing tells"


_MODULE_CALL = r"nn\.Module: .*_\d+$"
"""Matches the names that torch's profiler gives to calls of modules, such as "nn.Module: Linear_3". The profiler
numbers the instances of each class, so a name belongs to one instance of a module."""

_CALL_OF_A_STEP = (
    r"nn\.Module: "
    r"|.*: (forward|backward|training_step|train_step|train_batch|execute_model)$"
    r"|<built-in (method|function) run_backward\b"
)
"""Matches frames that torch, Lightning, transformers, DeepSpeed, Megatron or vLLM enter at least once per step. The
loop over the steps is never inside such a frame."""

_OPERATOR = r"\w+::|\w+Backward\d*$|(## Call )?CompiledF|Torch-Compiled Region"
"""Matches the names of operators, autograd nodes and compiled functions. The kind of an event is not enough to find
them, because old versions of torch recorded annotations as operators, too."""

_BACKWARD = r"autograd::engine::evaluate_function"
_EMBEDDING = r"aten::embedding(_bag)?$"
_PRINTING = r"(.*/)?torch/_tensor_str\.py$"
_OPTIMIZER = r"Optimizer\.step#"
_ANY = ""
_MOST = 0.5  # a majority


def nature_of(timeline: Timeline, start: I64, end: I64) -> Nature:
    """Returns whether spans of time on the host, in which a run repeats, are steps or parts of
    steps.

    Args:
        timeline: A recorded run.
        start: The start of each span, in ns, ascending.
        end: The end of each span, in ns.
    """
    if len(start) < 2 or _compute_nothing(timeline, start, end) or within_one_call(timeline, start):
        return Nature.PART
    for evidence in (_of_modules, _of_passes, _of_embeddings):
        if (nature := evidence(timeline, start, end)) is not None:
            return nature
    marked = _named(timeline, (HostKind.ANNOTATION, HostKind.OP), _ANY)
    grouped = _enclose(timeline, start, marked) or _waited_for_together(timeline, start, end)
    return Nature.UNCLEAR if grouped or _called_together(timeline, start, end) else Nature.UNKNOWN


def _compute_nothing(timeline: Timeline, start: I64, end: I64) -> bool:
    """Returns whether more than a few of the spans of time [start, end) compute nothing: they only
    copy data or print a tensor.
    """
    device, host = timeline.device, timeline.host
    stacks, lines = timeline.stacks, timeline.lines
    launch = device.launch[(device.kind == DeviceKind.KERNEL) & (device.launch >= 0)]
    printing = nearest(stacks.parent, named(timeline, _PRINTING, lines.file)[stacks.line])
    prints = np.append(printing, -1)[host.stack[launch]] >= 0
    return not _in_most(host.start[launch[~prints]], start, end)


def within_one_call(timeline: Timeline, start: I64) -> bool:
    """Returns whether most of the spans of time that begin at `start` begin in the same call as the
    span before. If so, the spans are parts of a step.

    Only calls of a module, a compiled function or an operator count, because each such call is a
    step or a part of a step. `start` has times in ns, ascending.
    """
    calls = _named(timeline, (HostKind.OP, HostKind.ANNOTATION), _OPERATOR)
    if not timeline.meta.frames_at_calls:  # those of several calls may be one
        calls |= _named(timeline, (HostKind.PYTHON,), _CALL_OF_A_STEP)
    return _enclose(timeline, start, calls)


def _enclose(timeline: Timeline, start: I64, chosen: Bool, most: int | None = None) -> bool:
    """Returns whether most pairs of successive times in `start` have an event in `chosen` that
    contains both times.

    Args:
        timeline: A recorded run.
        start: Times in ns, ascending.
        chosen: A mask of the host events that count. An event counts only if its thread launches
            work.
        most: Events that contain more than this number of times do not count, because such an event
            may be a call of the function with the loop over the steps. None if there is no such
            limit.
    """
    host, device = timeline.host, timeline.device
    if len(start) < 2:
        return False
    launching = np.zeros(len(timeline.threads) + 1, dtype=np.bool_)
    launching[host.thread[device.launch[device.launch >= 0]]] = True
    long = host.end - host.start >= np.diff(start).min()
    rows = np.flatnonzero(chosen & long & launching[host.thread])
    first = np.searchsorted(start, host.start[rows], side="left")
    last = np.searchsorted(start, host.end[rows], side="left") - 1
    several = (last > first) & (last - first < (most or len(start)))
    change = np.bincount(first[several], minlength=len(start)) - np.bincount(last[several], minlength=len(start))
    return bool((np.cumsum(change)[:-1] > 0).mean() >= _MOST)


def _called_together(timeline: Timeline, start: I64, end: I64) -> bool:
    """Returns whether most pairs of successive spans of time have a call of a Python function that
    encloses both spans. A call that encloses all spans does not count. The spans are [start, end).

    Returns False if nearly all spans launch a CUDA graph, because each span is then a whole pass of
    the model.
    """
    host = timeline.host
    if timeline.meta.frames_at_calls or _in_most(host.start[host.kind == HostKind.GRAPH_LAUNCH], start, end):
        return False
    return _enclose(timeline, start, _named(timeline, (HostKind.PYTHON,), _ANY), most=len(start) - 1)


def _waited_for_together(timeline: Timeline, start: I64, end: I64) -> bool:
    """Returns whether the host waits for the device several times, but only in a minority of the
    spans of time [start, end).

    This suggests that the host waits at the end of each step, and that each step has several spans.
    """
    span = _span_of(timeline.host.start[timeline.host.kind == HostKind.SYNC], start, end)
    waited = len(np.unique(span[span >= 0]))
    return LEAST_PERIODS - 1 <= waited < _MOST * len(start)


def _of_modules(timeline: Timeline, start: I64, end: I64) -> Nature | None:
    """Judges the spans of time [start, end) by the modules that are called in them. Returns None if
    more than a few of the spans have no call of a module.

    A step calls the same module instances as the step before. A layer calls other module instances
    than the layer before.
    """
    host = timeline.host
    rows = np.flatnonzero(_named(timeline, (HostKind.PYTHON,), _MODULE_CALL))
    # Spans begin at launches, so what launched them began a little earlier. Its end is in the same span.
    span = _span_of(host.end[rows], start, end)
    inside = span >= 0
    width = len(timeline.strings)
    called = np.unique(span[inside] * width + host.name[rows[inside]])
    if not _nearly_all(len(np.unique(called // width)), len(start)):
        return None
    followed = called[called // width < len(start) - 1]
    again = np.isin(followed + width, called).mean() if len(followed) else 0
    return Nature.STEP if again >= _MOST else Nature.PART


def _of_passes(timeline: Timeline, start: I64, end: I64) -> Nature | None:
    """Judges the spans of time [start, end) by forward and backward passes. Returns None if more
    than a few of the spans have no backward pass.

    A training step has launches by the autograd engine and launches by other code. If an optimizer
    steps in some of the spans, but not in nearly all, the spans are micro-batches. If all launches
    in the spans belong to a backward pass, the spans are parts of a backward pass.
    """
    host, device = timeline.host, timeline.device
    backward = _named(timeline, (HostKind.OP,), _BACKWARD)
    if not backward.any():
        return None
    calls = np.unique(device.launch[device.launch >= 0])
    in_backward = nearest(host.parent, backward)[calls] >= 0
    launched = host.start[calls]
    if not _in_most(launched[in_backward], start, end):
        return None
    optimizer = host.end[_named(timeline, (HostKind.ANNOTATION, HostKind.OP), _OPTIMIZER)]
    stepped = not len(optimizer) or _in_most(optimizer, start, end)
    return Nature.STEP if stepped and _in_most(launched[~in_backward], start, end) else Nature.PART


def _of_embeddings(timeline: Timeline, start: I64, end: I64) -> Nature | None:
    """Returns STEP if nearly all spans of time [start, end) look up an embedding, and no embedding
    is looked up outside of the spans. Returns None if not.

    A model looks up its embeddings only once in each step, before its layers. Some models, such as
    UMT5, also have an embedding in each layer. In UMT5, this embedding is for relative positions.
    If the spans are layers of such a model, the lookup before the layers is outside of the spans.
    """
    looked_up = timeline.host.end[_named(timeline, (HostKind.OP,), _EMBEDDING)]
    outside = bool((_span_of(looked_up, start, end) < 0).any())
    return Nature.STEP if not outside and _in_most(looked_up, start, end) else None


def _in_most(times: I64, start: I64, end: I64) -> bool:
    """Returns whether nearly all spans of time [start, end) contain at least one of the given times."""
    span = _span_of(np.asarray(times), start, end)
    return _nearly_all(len(np.unique(span[span >= 0])), len(start))


def _nearly_all(count: int, spans: int) -> bool:
    """Returns whether `count` spans are nearly all of `spans` spans.

    One missing span is always allowed, because the recording may have ended within the last span.
    """
    return count >= min(ALIKE * spans, spans - 1)


def _span_of(times: I64, start: I64, end: I64) -> I64:
    """Returns, for each of the given times, the index of the span [start, end) that contains it, or
    -1 if no span does.
    """
    span = np.searchsorted(start, times, side="right") - 1
    inside: I64 = np.where((span >= 0) & (times < end[np.maximum(span, 0)]), span, -1)
    return inside


def _named(timeline: Timeline, kinds: tuple[HostKind, ...], pattern: str) -> Bool:
    """Returns a mask of the host events that are of the kinds `kinds` and whose names begin with a match of
    `pattern`."""
    chosen: Bool = np.isin(timeline.host.kind, kinds)
    chosen[chosen] = named(timeline, pattern, timeline.host.name[chosen])
    return chosen


def stands_out(timeline: Timeline, calls: I64, tokens: I64, starts: I64, period: int) -> bool:
    """Returns whether a run has other kernels before, after or between the repetitions of a
    sequence of launches. If so, the repetitions are probably layers of a model, and the other
    kernels are those of an embedding or a head. Copies do not count.

    If the other kernels all run before the first repetition, within at most `period` launches, they
    may be preparation, and the result is False. If they all run at one point between two
    repetitions, this may be a coincidence, and the result is False, too.

    Args:
        timeline: A recorded run.
        calls: All launches, as rows of `timeline.host`, in order of time.
        tokens: For each launch, a number for its kernel. Equal numbers mean the same kernel.
        starts: The indices in `calls` at which repetitions begin.
        period: The number of launches in a repetition.
    """
    if starts[0] > period:
        return True
    same = tokens[period:] == tokens[:-period]
    odd = ~(np.append(same, np.zeros(period, np.bool_)) | np.append(np.zeros(period, np.bool_), same))
    odd &= launches_kernels(timeline, calls)
    places = np.flatnonzero(odd)
    end = int(starts[-1]) + period
    between = places[(places >= starts[0]) & (places < end)]
    runs = int(len(between) > 0) + int((np.diff(between) > period // 2).sum())
    return bool((places >= end).any() or len(tokens) - end > period or int((places < starts[0]).any()) + runs > 1)


def launches_kernels(timeline: Timeline, calls: I64) -> Bool:
    """Returns, for each of `calls` (rows of `timeline.host`), whether the call launches a kernel."""
    device = timeline.device
    launch = device.launch[(device.kind == DeviceKind.KERNEL) & (device.launch >= 0)]
    found = np.zeros(len(timeline.host), dtype=np.bool_)
    found[launch] = True
    kernels: Bool = found[calls]
    return kernels
