"""Interprets the names in a trace: API calls, copies, frames.

Call these functions once per distinct name, not once per event.
"""

from __future__ import annotations

import re

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
"""A callback of the host that runs as a node of a CUDA graph."""

_NO_WORK = SYNCS | {
    "gpu_user_annotation",  # what the device did during an annotation of the host
    "cuda_event",
    "graph_event_node",  # an event that a CUDA graph records; it takes no time
    "cuda_profiler_range",
    HOST_NODE,  # told on its own
}


LONGEST = 4096
"""The number of characters of a name that patterns look at. No real name is longer."""


def host_kind(category: str) -> int:
    """Returns the HostKind of an event category. Returns -1 if events of this category are not host events.

    The result for every API call is HostKind.CALL. `call_kind` returns a more precise kind for a call.
    """
    flat = category.lower().replace(" ", "_")
    return _HOST_KINDS.get(flat, HostKind.CALL if _CALLS.fullmatch(flat) else -1)


def device_kind(category: str) -> int:
    """Returns the DeviceKind of an event category, or -1 if its events are not device work."""
    return _DEVICE_KINDS.get(category.lower().replace(" ", "_"), -1)


def is_no_work(category: str) -> bool:
    """Returns whether events of a category are known to be neither host events nor device work."""
    return category in _NO_WORK


_SPAN = re.compile(r"ProfilerStep|Optimizer\.|enumerate\(DataLoader\)|DistributedDataParallel\.|## ")


def is_span(name: str) -> bool:
    """Returns whether an operator's name means that it is an annotation.

    Before torch 1.9, annotations had the category of operators.
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


def call_kind(name: str) -> HostKind:
    """Returns the kind of an API call of the CUDA, HIP or oneAPI runtime or driver."""
    for kind, pattern in _CALL_KINDS:
        if pattern.match(name, 0, LONGEST):
            return kind
    return HostKind.CALL


def wait_kind(name: str) -> WaitKind:
    """Returns the kind of a wait. `name` is the name of a `cuda_sync` event ("Stream Wait Event") or of an API call."""
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
    """Returns the direction of a device copy, given its name, such as "Memcpy HtoD (Pageable -> Device)" or
    "CopyHostToDevice".
    """
    for direction, pattern in _DIRECTIONS:
        if pattern.search(name, 0, LONGEST):
            return direction
    return CopyDirection.NONE


def host_memory(name: str) -> HostMemory:
    """Returns PAGEABLE or PINNED for the host memory of a device copy, or UNKNOWN if the copy's name does not say
    which.
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
    """Returns Kineto's name of a copy, such as "Memcpy HtoD (Pageable -> Device)", or "Memcpy" if the kind is not
    known.
    """
    if kind not in _COPY_KINDS:
        return "Memcpy"
    sides = (_MEMORY_KINDS.get(side, "Unknown") for side in (source, target))
    return f"Memcpy {_COPY_KINDS[kind]} ({' -> '.join(sides)})"


def memset_name(memory: int | str) -> str:
    """Returns Kineto's name of a memset, such as "Memset (Device)", or "Memset" if the kind of memory is not known."""
    return f"Memset ({_MEMORY_KINDS[memory]})" if memory in _MEMORY_KINDS else "Memset"


_FRAME = re.compile(r"^(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)$", re.DOTALL)
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-fA-F]+")
_MAX_LINE = 2**31 - 1


def frame(name: str) -> tuple[str, int, str]:
    """Returns (file, line, function) for the name of a Python frame, or ("", -1, name) for a built-in function or a
    module.

    In recordings by torch, the line is where the function is defined. In recordings by unstall, it is the line that
    ran. Memory addresses are removed, so that each built-in function has one name.
    """
    if match := _FRAME.match(name):
        line = match["line"]
        return match["file"], int(line) if len(line) < 10 else _MAX_LINE, match["function"]
    return "", -1, _ADDRESS.sub("", name)
