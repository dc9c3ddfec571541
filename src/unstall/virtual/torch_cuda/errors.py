"""Errors in CUDA's words, as torch raises them."""

from __future__ import annotations

from types import ModuleType

CUDA_DEVICE_TYPE = 1
"""c10::DeviceType::CUDA"""
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
    """torch.AcceleratorError for what CUDA calls `text`, and that `call` was it that failed."""
    look = WHERE_TO_LOOK.format(symbol=SYMBOLS[text])
    return accelerator_error(torch_c, f"CUDA error: {text}\n{look}\nIt was returned by {call}.\n")


def accelerator_error(torch_c: ModuleType, message: str) -> Exception:
    error: Exception = getattr(torch_c, "AcceleratorError", RuntimeError)(message)
    return error
