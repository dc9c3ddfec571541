"""The host computes K times as fast: "what if this were C++?"."""

from __future__ import annotations

import math

from unstall.errors import UsageError
from unstall.locate.kinds import is_no_code
from unstall.what_if.subject import Subject

_LEAST = 1e-3  # 1000 times slower


def prepare(text: str | None) -> float:
    return parse_factor("host-speed", text)


def apply(subject: Subject, factor: float) -> Subject:
    """Returns the run with the host `factor` times as fast. Its waits for data, sleep, requests to
    the driver and first uses stay as long as they are.
    """
    kept = is_no_code(subject.timeline) | subject.startup
    return subject.faster(factor, 1 - subject.share_of_work(kept), 1 - subject.share_of_call(kept))


def parse_factor(name: str, text: str | None) -> float:
    """Returns the number K of an edit that is written NAME:K. `name` is NAME, and `text` is K,
    which may be "inf".

    Raises:
        UsageError: The text is no number, or one below 0.001.
    """
    try:
        factor = float(text or "")
    except ValueError:
        factor = math.nan
    if not factor >= _LEAST:
        raise UsageError(f"write {name}:K with a K of 0.001 or more, such as {name}:2 for twice as fast, or {name}:inf")
    return factor
