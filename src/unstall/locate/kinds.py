"""What names stand for, beyond what readers tell: collectives among kernels, data loading among host events."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from unstall.grouping import by_text
from unstall.timeline import I32, Bool, HostKind, Timeline

_KERNEL = re.compile(r"(?:void )?(?:\w+::)*(?:nccl|rccl|msccl|nvshmem)", re.IGNORECASE)
_LOADING = re.compile(
    r"enumerate\(DataLoader\)|.*torch/utils/data/dataloader\.py\(\d+\): (__next__|_next_data|__iter__)$"
)
_LONGEST = 4096  # characters of a name that are looked at


def is_collective(strings: Sequence[str], names: I32) -> Bool:
    """Which kernels' names are those of a collective: of NCCL, RCCL, MSCCL or NVSHMEM."""
    return by_text(names, lambda index: _KERNEL.match(strings[index], 0, _LONGEST) is not None).astype(np.bool_)


def is_data_loading(timeline: Timeline) -> Bool:
    """Which host events are a `DataLoader` giving its next batch."""
    host = timeline.host
    may = (host.kind == HostKind.ANNOTATION) | (host.kind == HostKind.PYTHON)
    named = by_text(host.name, lambda index: _LOADING.match(timeline.text(index), 0, _LONGEST) is not None)
    chosen: Bool = may & named.astype(np.bool_)
    return chosen
