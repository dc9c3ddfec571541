"""Tells the kind of an event by its name: which kernels are collectives, which host events are data
loading, sleep, the recorder's work, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from unstall.frameworks import PREFETCH_WAIT
from unstall.locate.collectives import Kind, kind_of_kernel
from unstall.timeline.columns import I32, I64, Bool, CopyDirection, DeviceKind, HostKind, Timeline
from unstall.timeline.grouping import by_text, distinct
from unstall.timeline.remembered import remembered

_ON_HOST = r"(?:gloo|mpi|ucc):(?!:)"
_LOADING = r"enumerate\(DataLoader\)|.*torch/utils/data/dataloader\.py\(\d+\): (__next__|_next_data|__iter__)$"
# Names of CUpti_ActivityOverheadKind (cupti_activity.h). _AMID matches overhead within the program's calls; a thread of
# CUPTI's own hands over full buffers.
_AMID = re.compile(r"Activity Buffer Request|Instrumentation|Resource|CUPTI|UVM", re.IGNORECASE)
_BESIDE = re.compile(r"Buffer", re.IGNORECASE)
# As Python names built-in functions: torch.select, for example, is a "method select of type object".
SLEEP = "<built-in function sleep>"
_ASLEEP = (
    r"<built-in (?:function (?:sleep|pause|select|input|system|wait|wait3|wait4|waitid|waitpid|sigwait\w*|sigtimedwait"
    r"|p?readv?|flock|lockf|fsync|fdatasync|getaddrinfo)>"
    r"|method (?:poll of select\.e?poll|(?:recv\w*|send\w*|connect|_accept) of socket"
    r"|(?:read|do_handshake) of _ssl\._SSLSocket|(?:acquire|__enter__) of _multiprocessing\.SemLock"
    # Not _io.BufferedReader, whose reads may decompress, nor _io.TextIOWrapper, which decodes.
    r"|read(?:all|into)? of _io\.FileIO) object)"
)
_OF_THREADS = r"<built-in method (?:(?:acquire|__enter__) of _thread\.(?:lock|RLock)|get of _queue\.SimpleQueue) object"
OF_THE_DRIVER = (HostKind.ALLOC, HostKind.FREE, HostKind.LOAD)
_LONGEST = 4096  # characters of a name that are looked at


def is_collective(strings: Sequence[str], names: I32) -> Bool:
    """Returns a mask of the names that are names of communication kernels, according to the table
    in `collectives.py`. For the ops of a timeline, `is_communication` is more accurate.

    Args:
        strings: Texts.
        names: The names, as indices into `strings`.
    """
    return by_text(names, lambda index: kind_of_kernel(strings[index]) not in (None, Kind.LOCAL)).astype(np.bool_)


@remembered
def is_communication(timeline: Timeline) -> Bool:
    """Returns a mask of the device ops that communicate with other GPUs, according to their names
    or to what the trace tells about them.

    A kernel that a call of torch.distributed launches directly is a collective, unless the table of
    names says that it is LOCAL. A kernel is not a collective if an operator inside the call
    launches it, for example to copy into a buffer. Copies of memory count only if they go to
    another device.
    """
    device, told = timeline.device, timeline.collectives
    found: Bool = (device.kind == DeviceKind.KERNEL) & is_collective(timeline.strings, device.name)
    kind, name = device.kind[told.op], device.name[told.op]
    local = by_text(name, lambda index: kind_of_kernel(timeline.strings[index]) is Kind.LOCAL) == 1
    peer = (kind == DeviceKind.COPY) & (device.direction[told.op] == CopyDirection.PEER_TO_PEER)
    found[told.op[peer | ((kind == DeviceKind.KERNEL) & ~local)]] = True
    return found


def named(timeline: Timeline, pattern: str | re.Pattern[str], names: I32, among: Bool | None = None) -> Bool:
    """Returns a mask of the names whose beginning matches a pattern.

    Args:
        timeline: The run.
        pattern: The regular expression. It is compiled only if there are names to look at.
        names: The names, as indices into `timeline.strings`.
        among: A mask of the names that count. None: all of them.
    """
    if among is not None:
        return among & named(timeline, pattern, names) if among.any() else among
    # Many patterns are looked for in the names of host events.
    found, which = names_of_host(timeline) if names is timeline.host.name else distinct(names)
    match, text = re.compile(pattern).match, timeline.text
    matches: Bool = np.array([match(text(index), 0, _LONGEST) is not None for index in found.tolist()], dtype=np.bool_)[
        which
    ]
    return matches


@remembered
def names_of_host(timeline: Timeline) -> tuple[I64, I64]:
    """Returns the distinct names of host events, and for each event the index of its name among them."""
    return distinct(timeline.host.name)


@remembered
def is_data_loading(timeline: Timeline) -> Bool:
    """Returns a mask of the host events in which a `DataLoader` gets its next batch."""
    host = timeline.host
    may: Bool = (host.kind == HostKind.ANNOTATION) | (host.kind == HostKind.PYTHON)
    return named(timeline, _LOADING, host.name, may)


def is_prefetch_wait(timeline: Timeline) -> Bool:
    """Returns a mask of the host events that wait for a batch from the thread of `unstall.prefetch`."""
    host = timeline.host
    named_so = by_text(host.name, lambda index: timeline.text(index) == PREFETCH_WAIT) == 1
    chosen: Bool = (host.kind == HostKind.ANNOTATION) & named_so
    return chosen


@remembered
def is_host_collective(timeline: Timeline) -> Bool:
    """Returns a mask of the host events that are collectives which the CPU runs (by gloo, MPI or
    UCC).

    Collectives of NCCL do not count, because their host events only launch kernels.
    """
    host = timeline.host
    may: Bool = (host.kind == HostKind.ANNOTATION) | (host.kind == HostKind.OP)
    return named(timeline, _ON_HOST, host.name, may)


@remembered
def is_asleep(timeline: Timeline) -> Bool:
    """Returns a mask of the host events that sleep, or that wait for another process, a connection
    or a file. Faster code does not shorten these events.

    A trace shows such events only if it comes from the virtual GPU, or if the recorder recorded the
    frames of built-in functions.
    """
    frames: Bool = timeline.host.kind == HostKind.PYTHON
    return named(timeline, _ASLEEP, timeline.host.name, frames)


def is_waiting_for_thread(timeline: Timeline) -> Bool:
    """Returns a mask of the host events that wait for another thread: for a lock, a queue item or a future."""
    frames: Bool = timeline.host.kind == HostKind.PYTHON
    return named(timeline, _OF_THREADS, timeline.host.name, frames)


@remembered
def is_no_code(timeline: Timeline) -> Bool:
    """Returns a mask of the host events that faster code of the program would not shorten.

    These events are data loading, sleep, waits for files and other processes, collectives that the
    CPU runs, and work of the driver.
    """
    others: Bool = is_data_loading(timeline) | is_asleep(timeline) | is_host_collective(timeline)
    return others | np.isin(timeline.host.kind, OF_THE_DRIVER)


def is_recorder_at_work(timeline: Timeline, *, amid: bool = False) -> Bool:
    """Returns a mask of the host events that are work of the recorder. With `amid`, only the
    recorder's work on the program's own threads counts.
    """
    host = timeline.host
    rows = np.flatnonzero(host.kind == HostKind.OVERHEAD)

    def is_one(index: int) -> bool:
        name = timeline.text(index)
        return bool(_AMID.match(name, 0, _LONGEST) or (not amid and _BESIDE.match(name, 0, _LONGEST)))

    chosen = np.zeros(len(host), dtype=np.bool_)
    chosen[rows] = by_text(host.name[rows], is_one)
    return chosen
