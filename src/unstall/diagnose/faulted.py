"""The verdict on a run in which a device failed."""

from __future__ import annotations

from collections.abc import Sequence

from unstall.diagnose.fault_words import what_is_wrong
from unstall.result import Finding, Verdict


def judge_faults(findings: Sequence[Finding]) -> Verdict:
    """Returns the verdict: which fault ended the program, and that speed is no matter then."""
    first = next((finding for finding in findings if finding.fault and finding.fault.ended), findings[0])
    others = [finding for finding in findings if finding is not first]
    text = [_sentence(first), *(_sentence(finding) for finding in others)]
    text.append("What a device is given after a fault is not computed, so nothing is said of speed.")
    return Verdict(bound_by="none", basis="recorded", text=" ".join(text))


def _sentence(finding: Finding) -> str:
    fault, where = finding.fault, finding.where
    assert fault is not None
    place = f"{where.file}:{where.line}" if where.file else where.op or "a line that is not known"
    if fault.ended:
        said = f"The program ended by a device fault at {place}"
    else:
        said = f"A device fault at {place}" + ("" if fault.noticed_at else ", of which Python was never told")
    return f"{said}: {what_is_wrong(fault)}."
