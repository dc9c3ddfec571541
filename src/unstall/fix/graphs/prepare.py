"""Makes a graph of an observed call: captures the call, checks the graph's results, and measures the gain."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from unstall.fix.graphs.call_arguments import CallArguments
from unstall.fix.graphs.capture.capture_device import CaptureDevice, Pool
from unstall.fix.graphs.capture.captured import Captured, capture_parallel, capture_serial
from unstall.fix.graphs.examine.examined_call import Examined
from unstall.fix.graphs.guarded_graph import GuardedGraph, Preparation
from unstall.fix.graphs.refusals import Refusal, Refused
from unstall.fix.graphs.saved_state import SavedState
from unstall.fix.graphs.static_call import StaticCall
from unstall.fix.graphs.static_inputs import copies_of
from unstall.fix.graphs.verify import agree, check, fastest

_KEEPS_AT_MOST = 0.25  # share of free memory that tensors kept during a capture on several streams may take

_ANOTHER_WAY = "it asks whether it is captured: results agree with eager's to rounding"


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """Options for the captures of a function.

    Attributes:
        lanes: The numbers of streams to try. If (), only one stream is used. If None, the numbers that are predicted to
            be faster than one stream are tried.
        verify: Whether to compare the results of a graph with the results of eager execution.
    """

    lanes: tuple[int, ...] | None
    verify: bool


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """A function call that is to be captured as a graph.

    Attributes:
        function: The function.
        call: The arguments of the call.
        examined: What was found out in an eager run of an earlier call.
    """

    function: Callable[..., Any]
    call: CallArguments
    examined: Examined


def prepared(device: CaptureDevice, pool: Pool, request: CaptureRequest, options: CaptureOptions) -> GuardedGraph:
    """Captures a call as a graph, checks the graph's results, and measures its gain. Returns the graph. Restores the
    tensors that the function changes.

    Args:
        device: The device.
        pool: The memory pool of the graph.
        request: The call to capture.
        options: Which numbers of streams to try, and whether to check the results.

    Raises:
        Refused: A graph is not possible, or is not faster than eager execution.
        Exception: Errors of the function and of the capture are raised unchanged.
    """
    begun = time.perf_counter()
    seen, reachable = request.examined.seen, request.examined.reachable
    inputs = request.call.tensors
    static_call = StaticCall(device, request.function, request.call, seen, request.examined.kind)
    entry_grads = [leaf.grad for leaf in static_call.leaves]
    saved = static_call.saved()
    try:
        static_call.inputs.fill(inputs)
        serial = capture_serial(device, pool, static_call.generators, static_call.segments())
        saved.restore_grads()
        repeatable = True
        if options.verify:
            for values in (copies_of(inputs, changed=True), inputs):
                repeatable &= check(static_call, serial, values, saved)
        parallel, note = _parallel(static_call, pool, serial, inputs, saved, options, repeatable)
        captured, times = fastest(static_call, serial, parallel, inputs, saved)
        for other in (serial, *parallel):
            if other is not captured:
                other.reset()
    finally:
        saved.restore()
    best = min(times.serial, times.parallel if captured.lanes > 1 and times.parallel else times.serial)
    if best >= times.eager:
        reason = f"a graph gains nothing: {times.eager * 1e3:.3f} ms as it is, {best * 1e3:.3f} ms as a graph"
        raise Refused(Refusal(reason, gainless=True))
    changed = reachable.changes()
    if changed:
        raise Refused(Refusal(f"while it was captured, {changed[0]}"))
    if seen.asks_whether_captured:
        note = "; ".join(filter(None, (note, _ANOTHER_WAY)))
    preparation = Preparation(times, time.perf_counter() - begun, repeatable, note)
    return GuardedGraph(static_call, captured, reachable, entry_grads, preparation)


def _parallel(
    static_call: StaticCall,
    pool: Pool,
    serial: Captured,
    inputs: list[torch.Tensor],
    saved: SavedState,
    options: CaptureOptions,
    repeatable: bool,
) -> tuple[list[Captured], str]:
    """Returns (captures, note): the captures on several streams that give the same bits as `serial`, and a note for
    the statistics."""
    if options.lanes == ():
        return [], ""
    if static_call.seen.bytes_made > _KEEPS_AT_MOST * static_call.device.free_bytes():
        return [], "its tensors are too large to be kept for a capture on several streams"
    try:
        static_call.inputs.fill(inputs)
        captures = capture_parallel(
            static_call.device, pool, static_call.generators, static_call.segments(), options.lanes, saved.restore
        )
    except Exception as error:  # fall back to the serial capture
        said = str(error).splitlines() or [type(error).__name__]
        return [], f"one stream, since {said[0]}"
    finally:
        saved.restore_grads()
    proved: list[Captured] = []
    for captured in captures:
        if options.verify and not _proved(static_call, serial, captured, inputs, saved, repeatable):
            captured.reset()
        else:
            proved.append(captured)
    if captures and not proved:
        return [], "one stream, since several gave other results"
    return proved, "" if captures else "one stream: no branches worth a second"


def _proved(
    static_call: StaticCall,
    serial: Captured,
    captured: Captured,
    inputs: list[torch.Tensor],
    saved: SavedState,
    repeatable: bool,
) -> bool:
    for values in (copies_of(inputs, changed=True), inputs):
        if repeatable:
            if not agree(static_call, serial, captured, values, saved):
                return False
            continue
        try:
            check(static_call, captured, values, saved)
        except Refused:
            return False
    return True
