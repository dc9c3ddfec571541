"""The host computes K times as fast: "what if this were C++?"."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from unstall.errors import UsageError
from unstall.locate.kinds import OF_THE_DRIVER, is_no_code
from unstall.what_if.subject import Subject

_LEAST = 1e-3  # 1000 times slower


def prepare(text: str | None) -> float:
    return parse_factor("host-speed", text)


def apply(subject: Subject, factor: float) -> Subject:
    """Makes the host faster. Waiting for data, sleep, allocation and module loading keep their length."""
    timeline, do = subject.timeline, subject.program.instructions
    kept = subject.share_of_work(is_no_code(timeline))
    kind = timeline.host.kind[np.maximum(do.host, 0)] if len(timeline.host) else np.zeros(len(do), dtype=np.int8)
    slow = (do.host >= 0) & np.isin(kind, OF_THE_DRIVER)
    work = (do.work * (kept + (1 - kept) / factor)).astype(np.int64)
    call = np.where(slow, do.call, (do.call / factor).astype(np.int64))
    return subject.with_program(replace(subject.program, instructions=replace(do, work=work, call=call)))


def parse_factor(name: str, text: str | None) -> float:
    """Returns the K of NAME:K, which may be `inf`. Raises UsageError."""
    try:
        factor = float(text or "")
    except ValueError:
        factor = math.nan
    if not factor >= _LEAST:
        raise UsageError(f"write {name}:K with a K of 0.001 or more, such as {name}:2 for twice as fast, or {name}:inf")
    return factor
