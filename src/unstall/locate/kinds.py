"""The meaning of names: collectives among kernels; data loading, sleep and the recorder's work among host events."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from unstall.timeline.columns import I32, Bool, HostKind, Timeline
from unstall.timeline.grouping import by_text

_KERNEL = re.compile(r"(?:void )?(?:\w+::)*(?:nccl|rccl|msccl|nvshmem)", re.IGNORECASE)
_LOADING = re.compile(
    r"enumerate\(DataLoader\)|.*torch/utils/data/dataloader\.py\(\d+\): (__next__|_next_data|__iter__)$"
)
# Of CUpti_ActivityOverheadKind (cupti_activity.h). Instrumentation, resources and room for events come in the midst of
# the program's calls; a thread of CUPTI's own hands full buffers over.
_AMID = re.compile(r"Activity Buffer Request|Instrumentation|Resource|CUPTI|UVM", re.IGNORECASE)
_BESIDE = re.compile(r"Buffer", re.IGNORECASE)
# As Python writes built-in functions: torch.select, say, is a "method select of type object".
SLEEP = "<built-in function sleep>"
_ASLEEP = re.compile(
    r"<built-in (?:function (?:sleep|pause|select|input|system|wait|wait3|wait4|waitid|waitpid|sigwait\w*|sigtimedwait"
    r"|p?readv?|flock|lockf|fsync|fdatasync|getaddrinfo)>"
    r"|method (?:poll of select\.e?poll|(?:recv\w*|send\w*|connect|_accept) of socket"
    r"|(?:read|do_handshake) of _ssl\._SSLSocket|(?:acquire|__enter__) of _multiprocessing\.SemLock"
    # Not of _io.BufferedReader, which may have what it reads decompressed, nor of _io.TextIOWrapper, which decodes.
    r"|read(?:all|into)? of _io\.FileIO) object)"
)
_OF_THREADS = re.compile(
    r"<built-in method (?:(?:acquire|__enter__) of _thread\.(?:lock|RLock)|get of _queue\.SimpleQueue) object"
)
OF_THE_DRIVER = (HostKind.ALLOC, HostKind.FREE, HostKind.LOAD)
_LONGEST = 4096  # characters of a name that are looked at


def is_collective(strings: Sequence[str], names: I32) -> Bool:
    """Which kernels' names are those of a collective: of NCCL, RCCL, MSCCL or NVSHMEM."""
    return by_text(names, lambda index: _KERNEL.match(strings[index], 0, _LONGEST) is not None).astype(np.bool_)


def named(timeline: Timeline, pattern: re.Pattern[str], names: I32) -> Bool:
    """Which rows have a name that the pattern matches at its start; asked once a distinct name."""
    return by_text(names, lambda index: pattern.match(timeline.text(index), 0, _LONGEST) is not None).astype(np.bool_)


def is_data_loading(timeline: Timeline) -> Bool:
    """Which host events are a `DataLoader` giving its next batch."""
    host = timeline.host
    may: Bool = (host.kind == HostKind.ANNOTATION) | (host.kind == HostKind.PYTHON)
    return may & named(timeline, _LOADING, host.name)


def is_asleep(timeline: Timeline) -> Bool:
    """Which host events are sleep, or waits for another process, a connection or a file, which no faster code shortens.

    They are known if frames of built-in functions were recorded, and on the virtual GPU.
    """
    frames: Bool = timeline.host.kind == HostKind.PYTHON
    return frames & named(timeline, _ASLEEP, timeline.host.name)


def is_waiting_for_thread(timeline: Timeline) -> Bool:
    """Which host events are a thread that waits for another one: by a lock or a queue, as futures do."""
    frames: Bool = timeline.host.kind == HostKind.PYTHON
    return frames & named(timeline, _OF_THREADS, timeline.host.name)


def is_no_code(timeline: Timeline) -> Bool:
    """Which host events no faster code makes shorter: other processes, sleep, files, and the driver at work."""
    return is_data_loading(timeline) | is_asleep(timeline) | np.isin(timeline.host.kind, OF_THE_DRIVER)


def is_recorder_at_work(timeline: Timeline, *, amid: bool = False) -> Bool:
    """Which host events are the recorder's own work; with `amid` only what a thread of the program does in between."""
    host = timeline.host
    rows = np.flatnonzero(host.kind == HostKind.OVERHEAD)

    def is_one(index: int) -> bool:
        name = timeline.text(index)
        return bool(_AMID.match(name, 0, _LONGEST) or (not amid and _BESIDE.match(name, 0, _LONGEST)))

    chosen = np.zeros(len(host), dtype=np.bool_)
    chosen[rows] = by_text(host.name[rows], is_one)
    return chosen
