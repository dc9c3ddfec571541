"""All that the host does takes 1/K of its time: "what if this were C++?"."""

from __future__ import annotations

import math
from dataclasses import replace

from unstall.errors import UsageError
from unstall.whatif.subject import Subject


def prepare(text: str | None) -> float:
    return parse_factor("host-speed", text)


def apply(subject: Subject, factor: float) -> Subject:
    do = subject.program.instructions
    faster = replace(do, work=(do.work / factor).astype("int64"), call=(do.call / factor).astype("int64"))
    return subject.with_program(replace(subject.program, instructions=faster))


def parse_factor(name: str, text: str | None) -> float:
    """The K of NAME:K, which may be `inf`. Raises UsageError."""
    try:
        factor = float(text or "")
    except ValueError:
        factor = math.nan
    if not factor > 0:
        raise UsageError(f"write {name}:K with a K above 0, such as {name}:2 for twice as fast, or {name}:inf")
    return factor
