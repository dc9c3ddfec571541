"""CUDA's errors with torch's messages, and the errors for what the virtual GPU does not have."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import NoReturn

CUDA_DEVICE_TYPE = 1
"""The value of c10::DeviceType::CUDA."""
SYMBOLS = {
    "initialization error": "cudaErrorInitializationError",
    "invalid argument": "cudaErrorInvalidValue",
    "operation failed due to a previous error during capture": "cudaErrorStreamCaptureInvalidated",
    "operation not permitted on an event last recorded in a capturing stream": "cudaErrorCapturedEvent",
    "operation not permitted when stream is capturing": "cudaErrorStreamCaptureUnsupported",
    "the operation cannot be performed in the present state": "cudaErrorIllegalState",
}
NO_SUCH_DEVICE = "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
WHERE_TO_LOOK = (
    "Search for `{symbol}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more"
    " information."
)


def cuda_error(torch_c: ModuleType, text: str, call: str) -> Exception:
    """Returns the torch.AcceleratorError for an error of CUDA.

    Args:
        torch_c: The module `torch._C`.
        text: CUDA's text for the error, a key of `SYMBOLS`.
        call: The name of the call that failed.
    """
    look = WHERE_TO_LOOK.format(symbol=SYMBOLS[text])
    return accelerator_error(torch_c, f"CUDA error: {text}\n{look}\nIt was returned by {call}.\n")


def accelerator_error(torch_c: ModuleType, message: str) -> Exception:
    """Returns a torch.AcceleratorError with this message; a RuntimeError if torch has no such class."""
    error: Exception = getattr(torch_c, "AcceleratorError", RuntimeError)(message)
    return error


class NotSupportedError(RuntimeError):
    """Raised when a program uses a part of CUDA that the virtual GPU does not have."""

    def __init__(self, name: str, instead: str = "") -> None:
        super().__init__(f"{name} is not supported by the virtual GPU" + (f": {instead}" if instead else ""))


def refusing(name: str, instead: str = "") -> Callable[..., NoReturn]:
    """Returns a function that raises NotSupportedError, whatever its arguments are."""

    def refuse(*_args: object, **_keywords: object) -> NoReturn:
        raise NotSupportedError(name, instead)

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    return refuse


def refusing_class(name: str, instead: str = "") -> type:
    """Returns a class from which torch can derive classes. Creating an instance raises NotSupportedError."""
    return type(name.rpartition(".")[2], (), {"__new__": refusing(name, instead), "__doc__": refusing.__doc__})


POOLS = "let the caching allocator choose its pool"
REFUSED_CLASSES = {
    "_cuda_CUDAAllocator_AllocatorState": ("CUDA graph trees of torch.compile", ""),
    "_MemPool": ("torch.cuda.MemPool", POOLS),
}
REFUSED_FUNCTIONS = {
    "_cuda_beginAllocateCurrentStreamToPool": ("torch.cuda.use_mem_pool", POOLS),
    "_cuda_beginAllocateCurrentThreadToPool": ("torch.cuda.use_mem_pool", POOLS),
    "_cuda_beginAllocateToPool": ("torch.cuda.use_mem_pool", POOLS),
    "_cuda_endAllocateToPool": ("torch.cuda.use_mem_pool", POOLS),
    "_cuda_releasePool": ("torch.cuda.use_mem_pool", POOLS),
    "_cuda_customAllocator": ("torch.cuda.memory.CUDAPluggableAllocator", "its memory would be a real GPU's"),
    "_cuda_changeCurrentAllocator": ("torch.cuda.memory.change_current_allocator", "its memory would be a real GPU's"),
    "_cuda_cudaCachingAllocator_enable": ("torch.cuda.caching_allocator_enable", "the cache is what is modelled"),
    "_cuda_getStreamFromExternal": ("torch.cuda.get_stream_from_external", "there are no streams of other libraries"),
    "_cuda_jiterator_compile_and_launch_kernel": ("torch.cuda.jiterator", "it compiles CUDA source"),
    "_cuda_getCheckpointState": ("CUDA graph trees of torch.compile", 'use torch.compile(mode="default")'),
    "_cuda_setCheckpointPoolState": ("CUDA graph trees of torch.compile", 'use torch.compile(mode="default")'),
    "_cuda_checkPoolLiveAllocations": ("CUDA graph trees of torch.compile", 'use torch.compile(mode="default")'),
    "_construct_CUDA_Tensor_From_Storage_And_Metadata": ("CUDA graph trees of torch.compile", ""),
    "_free_And_Remove_DeleterFn": ("CUDA graph trees of torch.compile", ""),
    "_has_Standard_Deleter": ("CUDA graph trees of torch.compile", ""),
    "_set_storage_access_error_msg": ("CUDA graph trees of torch.compile", ""),
    "_set_storage_data_ptr_access_error_msg": ("CUDA graph trees of torch.compile", ""),
    "_tensors_data_ptrs_at_indices_equal": ("CUDA graph trees of torch.compile", ""),
    "_cuda_attach_out_of_memory_observer": ("torch._C._cuda_attach_out_of_memory_observer", ""),
    "_cuda_tunableop_enable": ("torch.cuda.tunable.enable", "it times the kernels of a real GPU"),
    "_cuda_tunableop_tuning_enable": ("torch.cuda.tunable.tuning_enable", "it times the kernels of a real GPU"),
    "_cuda_record_untuned_enable": ("torch.cuda.tunable.record_untuned_enable", "it times the kernels of a real GPU"),
    "_cuda_tunableop_read_file": ("torch.cuda.tunable.read_file", "it chooses kernels of a real GPU"),
    "_nccl_init_rank": ("torch.cuda.nccl.init_rank", "use several virtual GPUs in one process"),
    "_nccl_unique_id": ("torch.cuda.nccl.unique_id", "use several virtual GPUs in one process"),
    "_gds_register_buffer": ("torch.cuda.gds.gds_register_buffer", ""),
    "_gds_deregister_buffer": ("torch.cuda.gds.gds_deregister_buffer", ""),
    "_gds_register_handle": ("torch.cuda.gds.GdsFile", ""),
    "_gds_deregister_handle": ("torch.cuda.gds.GdsFile", ""),
    "_gds_load_storage": ("torch.cuda.gds.GdsFile", ""),
    "_gds_save_storage": ("torch.cuda.gds.GdsFile", ""),
}


def refused_names() -> dict[str, object]:
    """Returns the functions and classes of `torch._C` that the virtual GPU does not have, as
    `{name: value}`. Each of them raises NotSupportedError when it is called.
    """
    classes = {name: refusing_class(*text) for name, text in REFUSED_CLASSES.items()}
    functions = {name: refusing(*text) for name, text in REFUSED_FUNCTIONS.items()}
    return {**classes, **functions}
