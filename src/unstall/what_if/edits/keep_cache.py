"""The allocator keeps its memory: no empty_cache, so no cudaFree, and no cudaMalloc once it has grown."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import HostKind
from unstall.what_if.place import EditPlace, parse_line
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> EditPlace | None:
    return parse_line(text) if text is not None else None


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    host = subject.timeline.host
    chosen = subject.host_rows(place) & np.isin(host.kind, (HostKind.ALLOC, HostKind.FREE))
    return subject.with_program(subject.cut(chosen))
