"""The verdict on a run in which a device failed, or whose program ended because the device's memory was full."""

from __future__ import annotations

from collections.abc import Sequence

from unstall.diagnose.fault_words import line_of, what_is_wrong
from unstall.figures import size
from unstall.result import Fault, Finding, Verdict

_NO_SPEED = "What a device is given after a fault is not computed, so nothing is said of speed."
_SHOWN = 2


def judge_faults(findings: Sequence[Finding]) -> Verdict:
    """Returns the verdict on a run with faults: a sentence on each fault. The fault that ended the
    program comes first.

    A fault is work that failed on a device, or a request for device memory that could not be met.
    `findings` are the findings of the run.
    """
    known = [(finding, finding.fault) for finding in findings if finding.fault is not None]
    known.sort(key=lambda each: not each[1].ended)
    said = [_memory(*each) if each[1].kind == "memory" else _fault(*each) for each in known]
    faulty = any(fault.kind != "memory" for _, fault in known)
    return Verdict(bound_by="none", basis="recorded", text=" ".join([*said, *([_NO_SPEED] if faulty else [])]))


def _fault(finding: Finding, fault: Fault) -> str:
    place = line_of(finding.where)
    if fault.ended:
        said = f"The program ended by a device fault at {place}"
    else:
        said = f"A device fault at {place}" + ("" if fault.noticed_at else ", of which Python was never told")
    return f"{said}: {what_is_wrong(fault)}."


def _memory(finding: Finding, fault: Fault) -> str:
    held = [f"{line_of(part.where)} holds {size(part.bytes)}" for part in fault.held[:_SHOWN]]
    of = f": {', '.join(held)}" if held else ""
    how = ", in the backward pass" if fault.backward else ""
    return f"The program ended at {line_of(finding.where)}{how}, as the device's memory was full{of}."
