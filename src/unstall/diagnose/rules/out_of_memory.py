"""Finds the line at which a program ended because a device's memory was full, and the lines that hold the memory."""

from __future__ import annotations

from unstall.diagnose.fault_words import line_of
from unstall.diagnose.faults import faults_of, finding_of
from unstall.diagnose.run import Run
from unstall.figures import counted, share, size
from unstall.result import Fault, Finding

_SHOWN = 5
_ADVICE = " If reserved but unallocated memory"  # how torch's advice begins, behind its figures


def out_of_memory(run: Run) -> list[Finding]:
    """Returns a finding at the line that asked for device memory when there was too little left.
    Returns [] if memory did not run out.
    """
    return [
        finding_of(run, row, fault, "out-of-memory", "Out of memory", _saw(fault), _fix(fault))
        for row, fault in faults_of(run, memory=True)
    ]


def _saw(fault: Fault) -> str:
    said = fault.check.partition(_ADVICE)[0].rstrip(".")
    whole = sum(part.bytes for part in fault.held)
    parts = [
        f"{line_of(part.where)}{f' ({part.where.op})' if part.where.op else ''} {size(part.bytes)}"
        f" ({share(part.bytes, whole)}) in {counted(part.count, 'allocation')}"
        for part in fault.held[:_SHOWN]
    ]
    more = len(fault.held) - len(parts)
    parts += [f"the rest by {counted(more, 'line')}"] if more > 0 else []
    return f"{said}; held by {', '.join(parts)}" if parts else said


def _fix(fault: Fault) -> str:
    first = f" ({line_of(fault.held[0].where)})" if fault.held else ""
    return (
        f"hold less at the first of these lines{first}. Activations are kept for the backward pass: use smaller "
        "batches, torch.utils.checkpoint, bfloat16, or torch.no_grad() if nothing is trained. Results that are "
        "collected keep their graph: use .detach(). What is needed no more: del it before the next step"
    )
