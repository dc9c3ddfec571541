"""Device memory as `torch.cuda.memory` shows it: converts what the simulator's allocator knows into torch's forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unstall.virtual.allocator.settings import SETTINGS_VARIABLES, AllocatorSettings, settings_text
from unstall.virtual.log import LogCode, TorchCall
from unstall.virtual.torch_cuda.cuda_errors import NotSupportedError, refusing
from unstall.virtual.torch_cuda.memory_history import MemoryHistory
from unstall.virtual.torch_cuda.runtime import Runtime
from unstall.virtual.torch_cuda.streams import stream_of_pointer, stream_pointer

if TYPE_CHECKING:
    import torch

ALL_POOLS = (0, 0)


def nested(flat: Mapping[str, int]) -> dict[str, Any]:
    """Returns nested dicts in place of one dict with dotted keys: {"a.b": 1} becomes {"a": {"b": 1}}."""
    whole: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        inner = whole
        for name in path:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return whole


def settings_of_snapshot(text: str) -> dict[str, Any]:
    """Returns the entry `allocator_settings` of a memory snapshot. `text` has the settings, in the
    form of PYTORCH_ALLOC_CONF.
    """
    settings = AllocatorSettings.parse(text)
    limit = settings.max_split_size
    return {
        "PYTORCH_CUDA_ALLOC_CONF": text,
        "max_split_size": -1 if "max_split_size_mb" not in text else limit,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {
            str(1 << power): count for power, count in enumerate(settings.roundup_power2_divisions)
        },
    }


def memory_names(runtime: Runtime) -> dict[str, object]:
    """Returns the functions and classes of `torch._C` for the memory of virtual devices, as `{name: value}`."""
    raw_blocks: dict[int, torch.UntypedStorage] = {}
    history = MemoryHistory(runtime)
    no_host_stats = refusing("torch.cuda.host_memory_stats")

    def all_devices() -> range:
        return range(runtime.shim.device_count())

    def memory_stats(device: int) -> dict[str, Any]:
        runtime.worked(TorchCall.MEMORY_STATS)
        with runtime.allocator(device) as allocator:
            return nested(allocator.memory_stats())

    def reset_peak(device: int) -> None:
        runtime.worked(TorchCall.RESET_MEMORY_STATS)
        with runtime.allocator(device) as allocator:
            allocator.reset_peak_memory_stats()

    def reset_accumulated(device: int) -> None:
        runtime.worked(TorchCall.RESET_MEMORY_STATS)
        with runtime.allocator(device) as allocator:
            allocator.reset_accumulated_memory_stats()

    def set_fraction(fraction: float, device: int) -> None:
        if not 0 <= fraction <= 1:
            raise RuntimeError(f"invalid fraction:{fraction}. Please set within [0, 1].")
        runtime.simulator.set_memory_fraction(runtime.checked_device(device), fraction)

    def memory_fraction(device: int) -> float:
        with runtime.allocator(device) as allocator:
            return allocator.memory_fraction

    def empty_cache() -> None:
        if runtime.captures.running:
            return  # during a capture, torch frees nothing and raises nothing
        for device in all_devices():
            runtime.shim.append(int(LogCode.EMPTY_CACHE), device, runtime.shim.current_stream(device), 0, 0, None, 0)

    def segments_of(device: int) -> Iterator[dict[str, Any]]:
        with runtime.allocator(device) as allocator:
            segments = allocator.memory_snapshot()
        return _segments(segments, history)

    def snapshot(pool: tuple[int, ...] | None = None) -> dict[str, object]:
        pool_id, with_traces = ((pool[0], pool[1]), len(pool) < 3 or pool[2]) if pool else (ALL_POOLS, True)
        segments = [
            segment
            for device in all_devices()
            for segment in segments_of(device)
            if pool_id in (ALL_POOLS, segment["segment_pool_id"])
        ]
        return {
            "segments": segments,
            "device_traces": [history.entries(device) if with_traces else [] for device in all_devices()],
            "allocator_settings": settings_of_snapshot(settings_text()),
            "external_annotations": [],
        }

    def raw_alloc(size: int, cuda_stream: int) -> int:
        device = runtime.shim.current_device()
        before = runtime.shim.current_stream(device)
        runtime.shim.set_stream(device, stream_of_pointer(cuda_stream, device))
        try:
            storage = _untyped_storage(size, device)
        finally:
            runtime.shim.set_stream(device, before)
        pointer = int(storage.data_ptr())
        raw_blocks[pointer] = storage
        return pointer

    def raw_delete(pointer: int) -> None:
        if raw_blocks.pop(pointer, None) is None:
            raise RuntimeError(f"invalid device pointer: {pointer:#x}")

    def set_settings(text: str) -> None:
        if AllocatorSettings.parse(text) != AllocatorSettings.parse(settings_text()):
            raise NotSupportedError(
                "changing the allocator's settings in a running program", f"set {SETTINGS_VARIABLES[0]} before it"
            )

    return {
        **history.names(),
        "_accelerator_emptyCache": empty_cache,
        "_accelerator_emptyHostCache": lambda: None,
        "_accelerator_getAllocatorSettings": settings_text,
        "_accelerator_getDeviceStats": memory_stats,
        "_accelerator_getMemoryInfo": runtime.mem_get_info,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_resetAccumulatedStats": reset_accumulated,
        "_accelerator_resetPeakStats": reset_peak,
        "_accelerator_setAllocatorSettings": set_settings,
        "_cuda_CUDAAllocator": _Allocator,
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_cudaCachingAllocator_raw_alloc": raw_alloc,
        "_cuda_cudaCachingAllocator_raw_delete": raw_delete,
        "_cuda_cudaCachingAllocator_set_allocator_settings": set_settings,
        "_cuda_cudaHostAllocator": lambda: 0,
        "_cuda_emptyCache": empty_cache,
        "_cuda_getAllocator": _Allocator,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_getMemoryFraction": memory_fraction,
        "_cuda_hostMemoryStats": no_host_stats,
        "_cuda_memorySnapshot": snapshot,
        "_cuda_memoryStats": memory_stats,
        "_cuda_resetAccumulatedHostMemoryStats": no_host_stats,
        "_cuda_resetAccumulatedMemoryStats": reset_accumulated,
        "_cuda_resetPeakHostMemoryStats": no_host_stats,
        "_cuda_resetPeakMemoryStats": reset_peak,
        "_cuda_setMemoryFraction": set_fraction,
        "_host_emptyCache": lambda: None,
    }


class _Allocator:
    """What `torch.cuda` returns when it is asked for the current allocator. There is only one."""


def _segments(segments: Sequence[Mapping[str, Any]], history: MemoryHistory) -> Iterator[dict[str, Any]]:
    """Yields the segments in torch's form: streams are CUDA's pointers, and stacks are lists of frames."""
    for segment in segments:
        blocks = [_with_frames(block, history) for block in segment["blocks"]]
        pointer = stream_pointer(segment["device"], segment["stream"])
        yield {**_with_frames(segment, history), "stream": pointer, "blocks": blocks}


def _with_frames(part: Mapping[str, Any], history: MemoryHistory) -> dict[str, Any]:
    others = {name: value for name, value in part.items() if name != "stack"}
    return {**others, "frames": history.frames(part["stack"])}


def _untyped_storage(size: int, device: int) -> torch.UntypedStorage:
    import torch

    return torch.UntypedStorage(size, device=torch.device("cuda", device))
