"""Makes findings from the faults of a run. A fault is work that failed on a device. The finding
says what failed, at which line, and where Python got the error.
"""

from __future__ import annotations

from typing import cast

import msgspec
import numpy as np

from unstall.decoding import converted
from unstall.diagnose.run import Group, Run
from unstall.result import Caller, Fault, FaultInput, Finding, HeldMemory, Where, WrongValue
from unstall.result import FaultKind as KindName
from unstall.timeline.columns import FaultKind
from unstall.timeline.fault_details import FaultDetails, unpacked
from unstall.timeline.grouping import groups

_NODE = "autograd::engine::evaluate_function: "
_AUTOGRAD = "torch/autograd/"
_MOST_HELD = 20  # lines


def faults_of(run: Run, *, memory: bool) -> list[tuple[int, Fault]]:
    """Returns the faults of a run: pairs `(row, fault)`. `row` is the index of the fault's row in
    `timeline.faults`.

    A fault is work that failed on a device, or a request for device memory that could not be met.
    If `memory` is True, returns only faults of the second kind. If `memory` is False, returns only
    faults of the first kind.
    """
    rows = np.flatnonzero((run.timeline.faults.kind == FaultKind.MEMORY) == memory)
    return [(row, fault_at(run, row)) for row in rows.tolist()]


def finding_of(run: Run, row: int, fault: Fault, rule: str, title: str, saw: str, fix: str) -> Finding:
    """Returns the finding for a fault. The finding is at the line whose work failed.

    Args:
        run: The recorded run.
        row: The index of the fault's row in `timeline.faults`.
        fault: The fault.
        rule: The name of the kind of finding.
        title: The finding's title.
        saw: What was observed.
        fix: What to do about it.
    """
    faults = run.timeline.faults
    call, replay = int(faults.call[row]), int(faults.replay[row])
    launched = np.array([replay if replay >= 0 else call], np.int64)
    finding = run.finding(
        rule,
        Group(-1, fault.operator, launched[launched >= 0]),
        title=title,
        saw=saw,
        fix=fix,
        safe_if="-",
        count=1,
        total_wait_ns=0,
        total_exposed_ns=0,
        wrong=True,
    )
    return msgspec.structs.replace(finding, where=_culprit(run, call, fault), fault=fault)


def fault_at(run: Run, row: int) -> Fault:
    """Returns the fault in one row of `timeline.faults`. `row` is the index of the row."""
    timeline, places = run.timeline, run.places
    faults, host = timeline.faults, timeline.host
    call, replay, noticed = (int(column[row]) for column in (faults.call, faults.replay, faults.noticed))
    launched = replay if replay >= 0 else call
    details = unpacked(timeline.text(int(faults.details[row]))) or FaultDetails(check="")
    stream, iteration = int(faults.stream[row]), int(faults.iteration[row])
    name = places.op_name(call)
    return Fault(
        kind=cast("KindName", FaultKind(faults.kind[row]).name.lower()),
        operator=name.removeprefix(_NODE) if name else None,
        kernel=details.kernel,
        check=details.check,
        inputs=tuple(FaultInput(name=each.name, dtype=each.dtype, shape=each.shape) for each in details.inputs),
        wrong=converted(details.wrong, WrongValue, from_attributes=True) if details.wrong else None,
        backward=call >= 0 and bool(host.forward[call] >= 0),
        device=int(faults.device[row]),
        stream=int(timeline.streams.stream[stream]) if stream >= 0 else None,
        iteration=iteration if iteration > 0 else None,
        call=_calls_until(run, call) if replay < 0 <= call else None,
        replayed_at=_where(run, replay) if replay >= 0 else None,
        noticed_at=_where(run, noticed) if noticed >= 0 else None,
        noticed_after_ns=int(host.start[noticed] - host.start[launched]) if noticed >= 0 and launched >= 0 else None,
        ended=bool(faults.ended[row]),
        held=_held(run) if faults.kind[row] == FaultKind.MEMORY else (),
    )


def _held(run: Run) -> tuple[HeldMemory, ...]:
    """Returns how much device memory each line held when memory ran out, largest amount first."""
    held, places = run.timeline.held, run.places
    known = held.call >= 0
    place = np.where(known, np.append(places.place, -1)[held.call], -1)
    parts = []
    for _, mine in groups(place):
        op = places.op_name(int(held.call[mine[np.argmax(held.bytes[mine])]]))
        calls = held.call[mine].astype(np.int64)
        where = places.where(int(place[mine[0]]), calls, op.removeprefix(_NODE) if op else None)
        parts.append(HeldMemory(where=where, bytes=int(held.bytes[mine].sum()), count=int(held.count[mine].sum())))
    return tuple(sorted(parts, key=lambda part: -part.bytes)[:_MOST_HELD])


def _where(run: Run, row: int) -> Where:
    return run.places.where(int(run.places.place[row]), row, run.places.op_name(row))


def _calls_until(run: Run, row: int) -> int | None:
    """Counts the events with the name and stack of the event `row`, up to and including this event, by start time.

    Returns None if the event has no stack.
    """
    host = run.timeline.host
    if host.stack[row] < 0:
        return None
    same = (host.stack == host.stack[row]) & (host.name == host.name[row]) & (host.start <= host.start[row])
    return int(same.sum())


def _culprit(run: Run, row: int, fault: Fault) -> Where:
    """Returns the place of the call that failed.

    If the call is in a backward function that the user wrote, the place is the line in this function. In this case, the
    caller of the place is the line of the forward pass.
    """
    places, stacks = run.places, run.timeline.stacks
    if row < 0:
        return Where(op=fault.operator)
    where = places.where(int(places.place[row]), row, fault.operator)
    own = _own_frame(run, row)
    if not fault.backward or own < 0 or not _within_autograd(run, int(stacks.parent[own])):
        return where
    inner = places.where(int(stacks.line[own]), -1, fault.operator)
    forward = (
        Caller(file=where.file, line=where.line, function=where.function or "") if where.file and where.line else None
    )
    return msgspec.structs.replace(inner, called_from=forward)


def _own_frame(run: Run, row: int) -> int:
    """Returns the innermost frame of the user's code around an event, or -1 if there is no such frame.

    For a backward operator, the frames around its forward operator do not count.
    """
    places, frame = run.places, int(run.timeline.host.stack[row])
    while frame >= 0 and not places.is_user_frame[frame]:
        frame = int(run.timeline.stacks.parent[frame])
    return frame


def _within_autograd(run: Run, frame: int) -> bool:
    """Returns whether this frame, or a frame around it, is in autograd's code."""
    timeline, stacks = run.timeline, run.timeline.stacks
    while frame >= 0:
        if _AUTOGRAD in timeline.text(int(timeline.lines.file[stacks.line[frame]])):
            return True
        frame = int(stacks.parent[frame])
    return False
