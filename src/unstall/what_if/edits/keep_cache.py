"""The allocator keeps its memory: no empty_cache, so no cudaFree, and no cudaMalloc once it has grown."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import HostKind
from unstall.what_if.place import EditPlace
from unstall.what_if.subject import Subject


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    host = subject.timeline.host
    chosen = subject.host_rows(place) & np.isin(host.kind, (HostKind.ALLOC, HostKind.FREE))
    return subject.with_program(subject.cut(chosen))
