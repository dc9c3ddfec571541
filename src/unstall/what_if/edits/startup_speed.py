"""First use takes 1/K of its time: the context, modules, and the choice of kernels."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import HostKind
from unstall.what_if.edits.host_speed import parse_factor
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> float:
    return parse_factor("startup-speed", text)


def apply(subject: Subject, factor: float) -> Subject:
    """Returns the run with first uses of kernels and libraries `factor` times as fast. Requests to
    the driver for memory within them stay as long as they are.
    """
    rows = subject.startup
    allocates = subject.instructions_of(np.isin(subject.timeline.host.kind, (HostKind.ALLOC, HostKind.FREE)))
    return subject.faster(factor, subject.share_of_work(rows), np.where(allocates, 0.0, subject.share_of_call(rows)))
