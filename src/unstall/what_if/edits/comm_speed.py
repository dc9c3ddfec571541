"""Collectives run K times as fast, and wait 1/K as long for other ranks."""

from __future__ import annotations

from unstall.locate.kinds import is_host_collective
from unstall.what_if.edits.host_speed import parse_factor
from unstall.what_if.edits.kernel_speed import ops_faster
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> float:
    return parse_factor("comm-speed", text)


def apply(subject: Subject, factor: float) -> Subject:
    rows = is_host_collective(subject.timeline)
    edited = subject.faster(factor, subject.share_of_work(rows), subject.share_of_call(rows)) if rows.any() else subject
    return subject.with_program(ops_faster(edited.program, subject.communication, factor))
