"""First use takes 1/K of its time: the context, modules, and the choice of kernels."""

from __future__ import annotations

from unstall.what_if.edits.host_speed import parse_factor
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> float:
    return parse_factor("startup-speed", text)


def apply(subject: Subject, factor: float) -> Subject:
    rows = subject.startup
    return subject.faster(factor, subject.share_of_work(rows), subject.share_of_call(rows))
