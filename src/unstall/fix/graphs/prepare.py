"""From a function that was observed to a graph that is proved, timed and ready to serve calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from unstall.fix.graphs.capture.captured import Captured, capture_parallel, capture_serial
from unstall.fix.graphs.capture.device import Device
from unstall.fix.graphs.look.observe import Observation
from unstall.fix.graphs.look.watch import Watch
from unstall.fix.graphs.ready import Ready
from unstall.fix.graphs.refusals import Refusal, Refused
from unstall.fix.graphs.state import Saved, copies_of
from unstall.fix.graphs.subject import Kind, Subject
from unstall.fix.graphs.verify import agree, check, fastest

_KEEPS_AT_MOST = 0.25  # of the free memory: what a capture on several streams may keep until it ends

_ANOTHER_WAY = "it asks whether it is captured: results agree with eager's to rounding"


@dataclass(frozen=True, slots=True)
class Options:
    """`lanes`: numbers of streams to try; None: those that promise to be faster; empty: the serial capture only."""

    lanes: tuple[int, ...] | None
    verify: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A call that is to be captured. `watch`: of the Python-side state that it reads."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: list[torch.Tensor]
    watch: Watch
    seen: Observation
    kind: Kind


def prepared(device: Device, pool: Any, candidate: Candidate, options: Options) -> Ready:
    """Captures, proves and measures, and leaves the program's state as it was. Raises `Refused`, and whatever the
    function or the capture raises."""
    begun = time.perf_counter()
    seen = candidate.seen
    subject = Subject(
        device, candidate.function, candidate.args, candidate.kwargs, candidate.inputs, seen, candidate.kind
    )
    watch = candidate.watch
    entry_grads = [leaf.grad for leaf in subject.leaves]
    saved = subject.saved()
    try:
        subject.buffers.fill(candidate.inputs)
        serial = capture_serial(device, pool, subject.generators, subject.segments())
        saved.restore_grads()
        repeatable = True
        if options.verify:
            for inputs in (copies_of(candidate.inputs, changed=True), candidate.inputs):
                repeatable &= check(subject, serial, inputs, saved)
        parallel, note = _parallel(device, pool, subject, serial, candidate.inputs, saved, options, repeatable)
        captured, times = fastest(subject, serial, parallel, candidate.inputs, saved)
        for other in (serial, *parallel):
            if other is not captured:
                other.reset()
    finally:
        saved.restore()
    best = min(times.serial, times.parallel if captured.lanes > 1 and times.parallel else times.serial)
    if best >= times.eager:
        reason = f"a graph gains nothing: {times.eager * 1e3:.3f} ms as it is, {best * 1e3:.3f} ms as a graph"
        raise Refused(Refusal(reason, gainless=True))
    changed = watch.changes()
    if changed:
        raise Refused(Refusal(f"while it was captured, {changed[0]}"))
    if seen.asks_whether_captured:
        note = "; ".join(filter(None, (note, _ANOTHER_WAY)))
    return Ready(subject, captured, watch, entry_grads, times, time.perf_counter() - begun, repeatable, note)


def _parallel(
    device: Device,
    pool: Any,
    subject: Subject,
    serial: Captured,
    inputs: list[torch.Tensor],
    saved: Saved,
    options: Options,
    repeatable: bool,
) -> tuple[list[Captured], str]:
    """Captures on several streams that give what the serial one gives, and why there are none."""
    if options.lanes == ():
        return [], ""
    if subject.seen.bytes_made > _KEEPS_AT_MOST * device.free_bytes():
        return [], "its tensors are too large to be kept for a capture on several streams"
    try:
        subject.buffers.fill(inputs)
        captures = capture_parallel(device, pool, subject.generators, subject.segments(), options.lanes, saved.restore)
    except Exception as error:  # it can do without: the serial capture is there
        said = str(error).splitlines() or [type(error).__name__]
        return [], f"one stream, since {said[0]}"
    finally:
        saved.restore_grads()
    proved: list[Captured] = []
    for captured in captures:
        if options.verify and not _proved(subject, serial, captured, inputs, saved, repeatable):
            captured.reset()
        else:
            proved.append(captured)
    if captures and not proved:
        return [], "one stream, since several gave other results"
    return proved, "" if captures else "one stream: no branches worth a second"


def _proved(
    subject: Subject,
    serial: Captured,
    captured: Captured,
    inputs: list[torch.Tensor],
    saved: Saved,
    repeatable: bool,
) -> bool:
    for values in (copies_of(inputs, changed=True), inputs):
        if repeatable:
            if not agree(subject, serial, captured, values, saved):
                return False
            continue
        try:
            check(subject, captured, values, saved)
        except Refused:
            return False
    return True
