"""Faults of devices: work that failed, such as a lookup by an index out of bounds."""

from __future__ import annotations

from unstall.diagnose.fault_words import advice, line_of, title, what_is_wrong
from unstall.diagnose.faults import faults_of, finding_of
from unstall.diagnose.run import Run
from unstall.figures import duration
from unstall.result import Fault, Finding

_MOST_INPUTS = 6


def device_fault(run: Run) -> list[Finding]:
    """Returns one finding for each fault of a device, at the line whose work failed."""
    return [
        finding_of(run, row, fault, "device-fault", title(fault), _saw(run, fault), advice(fault))
        for row, fault in faults_of(run, memory=False)
    ]


def _saw(run: Run, fault: Fault) -> str:
    said = (what_is_wrong(fault), _operation(run, fault), _when(fault), _noticed(fault))
    return "; ".join(text for text in said if text)


def _operation(run: Run, fault: Fault) -> str:
    name = fault.operator or fault.kernel or "work"
    inner = f" ({fault.kernel})" if fault.kernel and fault.kernel != name else ""
    given = f" of {_inputs(fault)}," if fault.inputs else ""
    stream = "" if fault.stream is None else f" on stream {fault.stream}"
    device = f" of device {fault.device}" if len(run.timeline.meta.devices) > 1 or fault.device else ""
    how = f" in a graph's replay at {line_of(fault.replayed_at)}" if fault.replayed_at else ""
    how = " in the backward pass" if fault.backward else how
    return f"{name}{inner}{given}{stream}{device}{how}".rstrip(",")


def _inputs(fault: Fault) -> str:
    names = {"self": "input"}  # as torch's documentation calls it
    shown = [
        f"{names.get(each.name, each.name)} {each.dtype} {list(each.shape)}" for each in fault.inputs[:_MOST_INPUTS]
    ]
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
    return f"Python noticed at {line_of(fault.noticed_at)}{op}, {duration(fault.noticed_after_ns or 0)} later"
