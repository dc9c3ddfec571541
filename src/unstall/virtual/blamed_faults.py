"""Tells `unstall.blame()` of the faults on the virtual GPU: which line launched the work that
failed, and which value was wrong.
"""

from __future__ import annotations

import linecache

from unstall.blaming.causes import ASSERTED, ERRORS, cause_of
from unstall.blaming.fault_sources import FaultsOf, add_source
from unstall.blaming.names import stream_name
from unstall.blaming.result import BlameResult, Line, Suspect
from unstall.frameworks import is_framework
from unstall.lines.clock import line_at
from unstall.timeline.fault_details import WrongValue
from unstall.virtual.faults.places import FailedAt
from unstall.virtual.log import Stack
from unstall.virtual.simulation.simulator import Simulator


def connect(simulator: Simulator) -> None:
    """Makes each `unstall.blame()` block that begins after this call report the faults that
    `simulator` sees during the block.
    """

    def begin() -> FaultsOf:
        before = simulator.failures()
        return lambda: _result(simulator.failures()[len(before) :])

    add_source(begin)


def _result(failures: list[FailedAt]) -> BlameResult:
    if not failures:
        return BlameResult()
    first, details = failures[0], failures[0].details
    own = _own_lines(first.stack)
    suspect = Suspect(
        where=own[0] if own else None,
        called_from=own[1:],
        work=(details.kernel,) if details.kernel else (),
        stream=stream_name(first.stream),
        backward=first.in_backward,
        replayed=next(iter(_own_lines(first.replayed)), None),
    )
    cause, fix = cause_of(ASSERTED, details.check, suspect.work)
    return BlameResult(
        error=ERRORS[ASSERTED],
        code=ASSERTED,
        suspects=(suspect,),
        assertion=details.check,
        cause=_wrong(details.wrong) if details.wrong else cause,
        fix=fix,
    )


def _wrong(value: WrongValue) -> str:
    """Returns a text that says which value was wrong, and between which bounds the valid values lie
    if this is known.
    """
    right = f": it must be {value.least} … {value.bound - 1}" if value.bound is not None else ""
    return f"{value.argument} is {value.value} at {list(value.position)}{right}"


def _own_lines(stack: Stack) -> tuple[Line, ...]:
    """Returns the lines of a stack that belong to the program itself or to other packages, but not
    to torch, NumPy, Python's standard library or unstall. The innermost is first.
    """
    lines = []
    for code, offset in stack:
        file, number = code.co_filename, line_at(code, offset)
        if not is_framework(file):
            lines.append(Line(file, number, code.co_qualname, linecache.getline(file, number).strip()))
    return tuple(lines)
