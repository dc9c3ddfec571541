"""Faults of devices: work that failed, such as a lookup by an index out of bounds."""

from __future__ import annotations

from typing import cast

import msgspec
import numpy as np

from unstall.diagnose.fault_words import advice, title, what_is_wrong
from unstall.diagnose.run import Group, Run
from unstall.figures import duration
from unstall.result import Caller, Fault, FaultInput, Finding, Where, WrongValue
from unstall.result import FaultKind as KindName
from unstall.timeline.columns import FaultKind
from unstall.timeline.fault_details import FaultDetails, unpacked

_NODE = "autograd::engine::evaluate_function: "
_AUTOGRAD = "torch/autograd/"
_MOST_INPUTS = 6


def device_fault(run: Run) -> list[Finding]:
    """Returns one finding for each fault, at the line whose work failed."""
    return [_finding(run, row) for row in range(len(run.timeline.faults))]


def _finding(run: Run, row: int) -> Finding:
    faults = run.timeline.faults
    call, replay = int(faults.call[row]), int(faults.replay[row])
    fault = _fault(run, row)
    launched = np.array([replay if replay >= 0 else call], np.int64)
    finding = run.finding(
        "device-fault",
        Group(-1, fault.operator, launched[launched >= 0]),
        title=title(fault),
        saw=_saw(run, fault),
        fix=advice(fault),
        safe_if="-",
        count=1,
        total_wait_ns=0,
        total_exposed_ns=0,
        wrong=True,
    )
    return msgspec.structs.replace(finding, where=_culprit(run, call, fault), fault=fault)


def _fault(run: Run, row: int) -> Fault:
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
        wrong=msgspec.convert(details.wrong, WrongValue, from_attributes=True) if details.wrong else None,
        backward=call >= 0 and bool(host.forward[call] >= 0),
        device=int(faults.device[row]),
        stream=int(timeline.streams.stream[stream]) if stream >= 0 else None,
        iteration=iteration if iteration > 0 else None,
        call=_calls_until(run, call) if replay < 0 <= call else None,
        replayed_at=_where(run, replay) if replay >= 0 else None,
        noticed_at=_where(run, noticed) if noticed >= 0 else None,
        noticed_after_ns=int(host.start[noticed] - host.start[launched]) if noticed >= 0 and launched >= 0 else None,
        ended=bool(faults.ended[row]),
    )


def _where(run: Run, row: int) -> Where:
    return run.places.where(int(run.places.place[row]), row, run.places.op_name(row))


def _calls_until(run: Run, row: int) -> int | None:
    """Returns how many events of this name the same stack had until this one, or None if the stack is not known."""
    host = run.timeline.host
    if host.stack[row] < 0:
        return None
    same = (host.stack == host.stack[row]) & (host.name == host.name[row]) & (host.start <= host.start[row])
    return int(same.sum())


def _culprit(run: Run, row: int, fault: Fault) -> Where:
    """Returns the place of the failed call. In a backward pass that the program wrote it is the line there, which
    autograd calls; the line of the forward pass then counts as its caller.
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
    """Returns the innermost frame of the user's around an event itself, not around its forward operator; or -1."""
    places, frame = run.places, int(run.timeline.host.stack[row])
    while frame >= 0 and not places.is_user_frame[frame]:
        frame = int(run.timeline.stacks.parent[frame])
    return frame


def _within_autograd(run: Run, frame: int) -> bool:
    """Returns whether autograd's code is at this frame or around it."""
    timeline, stacks = run.timeline, run.timeline.stacks
    while frame >= 0:
        if _AUTOGRAD in timeline.text(int(timeline.lines.file[stacks.line[frame]])):
            return True
        frame = int(stacks.parent[frame])
    return False


def _saw(run: Run, fault: Fault) -> str:
    said = [_operation(run, fault)]
    said.append(what_is_wrong(fault))
    said += [f"given {_inputs(fault)}" if fault.inputs else "", _when(fault), _noticed(fault)]
    return "; ".join(text for text in said if text)


def _operation(run: Run, fault: Fault) -> str:
    name = fault.operator or fault.kernel or "work"
    inner = f" ({fault.kernel})" if fault.kernel and fault.kernel != name else ""
    stream = "" if fault.stream is None else f" on stream {fault.stream}"
    device = f" of device {fault.device}" if len(run.timeline.meta.devices) > 1 or fault.device else ""
    where = f", in a graph's replay at {_line(fault.replayed_at)}" if fault.replayed_at else ""
    return f"{name}{inner}{stream}{device}{where}"


def _inputs(fault: Fault) -> str:
    shown = [f"{each.name} {each.dtype} {list(each.shape)}" for each in fault.inputs[:_MOST_INPUTS]]
    more = len(fault.inputs) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])])


def _when(fault: Fault) -> str:
    if fault.iteration is not None:
        return f"in step {fault.iteration:,}"
    return f"in call {fault.call:,} from here" if fault.call and fault.call > 1 else ""


def _noticed(fault: Fault) -> str:
    if fault.noticed_at is None:
        return "Python never noticed: nothing waited for the device afterwards, so the exit code may be 0"
    op = f" ({fault.noticed_at.op})" if fault.noticed_at.op else ""
    return f"Python noticed at {_line(fault.noticed_at)}{op}, {duration(fault.noticed_after_ns or 0)} later"


def _line(where: Where) -> str:
    if not where.file:
        return where.function or where.op or "a line that is not known"
    return f"{where.file}:{where.line}"
