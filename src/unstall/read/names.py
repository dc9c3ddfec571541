"""Interprets the names and categories of a trace's events: which kind of call, wait or copy they
stand for.

There are few distinct names among many events. So callers call these functions once per distinct
name.
"""

from __future__ import annotations

import re
from functools import lru_cache

from unstall.timeline.columns import CopyDirection, DeviceKind, HostKind, HostMemory, WaitKind

# Event categories, as spelled from torch 1.8 ("Operator") to today ("cpu_op"), in lower case.
_HOST_KINDS = {
    **dict.fromkeys(("cpu_op", "operator"), HostKind.OP),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver"), HostKind.CALL),
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
    "overhead": HostKind.OVERHEAD,
}
# The calls of other platforms, as Kineto's ActivityType.cpp spells them: xpu_runtime, xpu_driver (Intel), mtia_runtime
# (Meta), privateuse1_runtime and privateuse1_driver (any other backend), glow_runtime.
_CALLS = re.compile(r"\w+_(?:runtime|driver)")
_DEVICE_KINDS = {
    "kernel": DeviceKind.KERNEL,
    **dict.fromkeys(("gpu_memcpy", "memcpy"), DeviceKind.COPY),
    **dict.fromkeys(("gpu_memset", "memset"), DeviceKind.MEMSET),
    "mtia_ccp_events": DeviceKind.KERNEL,  # what Meta's MTIA runs
}


SYNCS = frozenset({"cuda_sync", "hip_sync"})

HOST_NODE = "graph_host_node"
"""The event category of a host callback that runs as a node of a CUDA graph."""

_NO_WORK = SYNCS | {
    "gpu_user_annotation",  # what the device did during an annotation of the host
    "cuda_event",
    "graph_event_node",  # an event that a CUDA graph records; it takes no time
    "cuda_profiler_range",
    HOST_NODE,  # told on its own
}


LONGEST = 4096
"""How many characters at the start of a name are matched against patterns. No real name is longer."""

_MOST_KEPT = 8192  # names whose meaning is kept: the ranks of a job have the same


def host_kind(category: str) -> int:
    """Returns the HostKind of the events with this category in a trace file. Returns -1 if these
    are not host events.

    The result for every API call is HostKind.CALL. `call_kind` returns the more precise kind of a
    call, given its name.
    """
    flat = category.lower().replace(" ", "_")
    return _HOST_KINDS.get(flat, HostKind.CALL if _CALLS.fullmatch(flat) else -1)


def device_kind(category: str) -> int:
    """Returns the DeviceKind of the events with this category in a trace file. Returns -1 if these
    are not work of the device.
    """
    return _DEVICE_KINDS.get(category.lower().replace(" ", "_"), -1)


def is_no_work(category: str) -> bool:
    """Returns whether it is known that the events with this category in a trace file are neither
    host events nor work of the device.
    """
    return category in _NO_WORK


_SPAN = re.compile(r"ProfilerStep|Optimizer\.|enumerate\(DataLoader\)|DistributedDataParallel\.|## ")


@lru_cache(_MOST_KEPT)
def is_span(name: str) -> bool:
    """Returns whether an event with the category of operators is in fact an annotation of the
    program, given its name. Before torch 1.9, annotations had the category of operators.
    """
    return bool(_SPAN.match(name, 0, LONGEST))


_OF_CUDA_AND_HIP: tuple[tuple[HostKind, str], ...] = (
    (HostKind.GRAPH_LAUNCH, r"Graph\w*Launch"),
    (HostKind.LAUNCH, r"\w*Launch\w*Kernel|LaunchGrid|Launch$"),
    (HostKind.COPY, r"Memcpy"),
    (HostKind.MEMSET, r"Memset"),
    (HostKind.SYNC, r"\w*Synchronize"),
    (HostKind.EVENT_RECORD, r"EventRecord"),
    (HostKind.EVENT_WAIT, r"StreamWaitEvent"),
    (
        HostKind.ALLOC,
        r"(?!\w*(?:Async|FromPool))(?:Malloc|HostAlloc|HostMalloc|ExtMalloc|MemAlloc|MemHostAlloc|MemCreate|MemMap|HostRegister|MemHostRegister)",
    ),
    (
        HostKind.FREE,
        r"(?!\w*(?:Async|FromPool))(?:Free|HostFree|MemFree|MemHostFree|MemRelease|MemUnmap|HostUnregister|MemHostUnregister)",
    ),
    (
        HostKind.LOAD,
        r"(?:Module\w*Load|Library\w*Load|\w*CtxCreate|DevicePrimaryCtx|Init|ModuleGetFunction|KernelGetFunction)",
    ),
)
_API = r"^_?(?:cuda|cu|hip)"
_ONE_API = r"^(?:ur|piext|pi|ze)"  # Intel: Unified Runtime, its predecessor, and Level Zero
_CALL_KINDS: tuple[tuple[HostKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(f"{api}(?:{pattern})"))
    for api, kind, pattern in (
        (_ONE_API, HostKind.GRAPH_LAUNCH, r"Enqueue(?:Exp)?CommandBuffer|CommandBufferEnqueue"),
        (_ONE_API, HostKind.LAUNCH, r"\w*EnqueueKernelLaunch|CommandListAppendLaunch\w*Kernel"),
        (_ONE_API, HostKind.COPY, r"\w*Enqueue\w*(?:Memcpy|MemBuffer(?:Copy|Read|Write))|CommandListAppendMemoryCopy"),
        (_ONE_API, HostKind.MEMSET, r"\w*Enqueue\w*(?:Fill|Memset)|CommandListAppendMemoryFill"),
        (_ONE_API, HostKind.SYNC, r"(?:QueueFinish|Events?Wait)$|\w*Synchronize"),
        (_ONE_API, HostKind.ALLOC, r"\w*USM\w*Alloc|MemAlloc"),
        (_ONE_API, HostKind.FREE, r"\w*USM(?:Mem)?Free|MemFree"),
        (_ONE_API, HostKind.LOAD, r"Program(?:Build|Compile|Link|Create)|Module(?:Create|Dynamic)|ContextCreate"),
        *((_API, kind, pattern) for kind, pattern in _OF_CUDA_AND_HIP),
    )
)


@lru_cache(_MOST_KEPT)
def call_kind(name: str) -> HostKind:
    """Returns the HostKind of a call, given its name in the API of the CUDA, HIP or oneAPI runtime or driver."""
    for kind, pattern in _CALL_KINDS:
        if pattern.match(name, 0, LONGEST):
            return kind
    return HostKind.CALL


def wait_kind(name: str) -> WaitKind:
    """Returns the kind of a wait. `name` is the name of a "cuda_sync" event, such as "Stream Wait
    Event", or of an API call.
    """
    flat = name.replace(" ", "").lower()
    if "streamwaitevent" in flat:
        return WaitKind.STREAM_EVENT
    if "event" in flat:
        return WaitKind.EVENT
    if "stream" in flat or "queue" in flat:
        return WaitKind.STREAM
    return WaitKind.DEVICE


_DIRECTIONS = (
    (CopyDirection.HOST_TO_DEVICE, re.compile(r"HtoD|HtoA|HostToDevice|\b[MH]2D", re.IGNORECASE)),
    (CopyDirection.DEVICE_TO_HOST, re.compile(r"DtoH|AtoH|DeviceToHost|\bD2[MH]", re.IGNORECASE)),
    (CopyDirection.DEVICE_TO_DEVICE, re.compile(r"DtoD|DtoA|AtoD|DeviceToDevice|\bD2D", re.IGNORECASE)),
    (CopyDirection.PEER_TO_PEER, re.compile(r"PtoP|Peer", re.IGNORECASE)),
    (CopyDirection.HOST_TO_HOST, re.compile(r"HtoH|HostToHost", re.IGNORECASE)),
)


def copy_direction(name: str) -> CopyDirection:
    """Returns the direction of a copy on the device, given its name, such as "Memcpy HtoD (Pageable
    -> Device)" or "CopyHostToDevice".
    """
    for direction, pattern in _DIRECTIONS:
        if pattern.search(name, 0, LONGEST):
            return direction
    return CopyDirection.NONE


def host_memory(name: str) -> HostMemory:
    """Returns the kind of host memory that a copy reads or writes, given the copy's name: PAGEABLE,
    PINNED, or UNKNOWN if the name does not say.
    """
    if "Pageable" in name:
        return HostMemory.PAGEABLE
    if "Pinned" in name:
        return HostMemory.PINNED
    return HostMemory.UNKNOWN


# To Kineto's spelling, from CUPTI's numbers and from the words of torch's second profiler.
_COPY_KINDS: dict[int | str, str] = dict(
    enumerate(("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"), 1)
)
_COPY_KINDS |= {kind: kind for kind in _COPY_KINDS.values()}
_MEMORY_KINDS: dict[int | str, str] = dict(
    enumerate(("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"))
)
_MEMORY_KINDS |= {kind.lower().replace(" ", "_"): kind for kind in _MEMORY_KINDS.values()}


def copy_name(kind: int | str, source: int | str, target: int | str) -> str:
    """Returns Kineto's name of a copy, such as "Memcpy HtoD (Pageable -> Device)". Returns "Memcpy"
    if the direction is not known.

    Args:
        kind: The direction of the copy, as a number of CUPTI or as text.
        source: The kind of memory that the copy reads, as a number of CUPTI or as text.
        target: The kind of memory that the copy writes, as a number of CUPTI or as text.
    """
    if kind not in _COPY_KINDS:
        return "Memcpy"
    sides = (_MEMORY_KINDS.get(side, "Unknown") for side in (source, target))
    return f"Memcpy {_COPY_KINDS[kind]} ({' -> '.join(sides)})"


def memset_name(memory: int | str) -> str:
    """Returns Kineto's name of a memset, such as "Memset (Device)". Returns "Memset" if the kind of
    memory is not known. `memory` is the kind of memory, as a number of CUPTI or as text.
    """
    return f"Memset ({_MEMORY_KINDS[memory]})" if memory in _MEMORY_KINDS else "Memset"


_FRAME = re.compile(r"^(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)$", re.DOTALL)
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-fA-F]+")
_MAX_LINE = 2**31 - 1


def frame(name: str) -> tuple[str, int, str]:
    """Returns `(file, line, function)` for the name of a Python frame in a trace, such as
    "train.py(12): step". Returns ("", -1, name) for a built-in function or a module.

    In recordings by torch, the line is the one where the function is defined. In recordings by
    unstall, it is the line that ran. Memory addresses are removed from the name, so that each
    built-in function has one name.
    """
    if match := _FRAME.match(name):
        line = match["line"]
        return match["file"], int(line) if len(line) < 10 else _MAX_LINE, match["function"]
    return "", -1, _ADDRESS.sub("", name)
