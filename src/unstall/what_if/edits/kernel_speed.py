"""All kernels, or the kernels of one place, run K times as fast. Collectives stay as they are: they wait for others."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.replay.program import Program
from unstall.timeline.columns import Bool, DeviceKind
from unstall.what_if.edits.host_speed import parse_factor
from unstall.what_if.place import EditPlace, parse_line
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> tuple[float, EditPlace | None]:
    factor, colon, place = (text or "").partition(":")
    return parse_factor("kernel-speed", factor), parse_line(place) if colon else None


def apply(subject: Subject, argument: tuple[float, EditPlace | None]) -> Subject:
    factor, place = argument
    program = subject.program
    ops = program.ops
    kernels = (subject.timeline.device.kind == DeviceKind.KERNEL)[ops.device] & ~subject.communication
    chosen = kernels & subject.at(place)[program.launcher] if place is not None else kernels
    return subject.with_program(ops_faster(program, chosen, factor))


def ops_faster(program: Program, chosen: Bool, factor: float) -> Program:
    """Returns the program with the chosen ops `factor` times as fast. `chosen` is a mask of the program's ops."""
    duration = np.where(chosen, (program.ops.duration / factor).astype(np.int64), program.ops.duration)
    return replace(program, ops=replace(program.ops, duration=duration))
