"""The streams of `torch.cuda`: `_CudaStreamBase`, the current stream, and `torch.cuda.set_sync_debug_mode`."""

from __future__ import annotations

import warnings
from typing import Self

from unstall.virtual.log import TorchCall
from unstall.virtual.torch_cuda.cuda_errors import CUDA_DEVICE_TYPE, NotSupportedError
from unstall.virtual.torch_cuda.runtime import Runtime

PRIORITIES = (0, -3)
"""The lowest and the highest priority that a stream can have in torch: in c10/cuda/CUDAStream.h,
max_compile_time_stream_priorities is 4.
"""
POINTER_BASE = 0x5600_0000_0000
POINTER_STRIDE = 0x160
DEVICE_SHIFT = 32
SYNC_DEBUG_MODES = (0, 1, 2)
PROTOTYPE = "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"


def stream_pointer(device: int, stream: int) -> int:
    """Returns the `cudaStream_t` of a stream, given c10's number of it. It is 0 for the default
    stream, as in CUDA, and a different number for each other stream.
    """
    return POINTER_BASE + (device << DEVICE_SHIFT) + stream * POINTER_STRIDE if stream else 0


def stream_of_pointer(pointer: int, device: int) -> int:
    """Returns c10's number of the stream of `device` whose `cudaStream_t` is `pointer`.

    Raises:
        ValueError: There is no such stream.
    """
    if pointer == 0:
        return 0
    stream, rest = divmod(pointer - POINTER_BASE - (device << DEVICE_SHIFT), POINTER_STRIDE)
    if rest or not 0 < stream < 1 << DEVICE_SHIFT:
        raise ValueError(f"{pointer:#x} is no stream of cuda:{device}")
    return stream


def stream_priority(stream: int) -> int:
    """Returns the priority of a stream, given c10's number of it. Bits 1 to 4 of the number say
    from which pool the stream comes (c10/cuda/CUDAStream.cpp), and each pool has one priority.
    """
    kind = stream >> 1 & 0xF
    return -(kind - 1) if kind else 0


def stream_names(runtime: Runtime) -> dict[str, object]:
    """Returns the functions and the class of `torch._C` for streams of a virtual GPU, as `{name: value}`."""
    torch_c, shim = runtime.torch_c, runtime.shim

    class CudaStreamBase(torch_c.Stream):  # type: ignore[name-defined, misc]
        """A CUDA stream. If neither a stream id nor a device is given, it is a new stream from the
        pool of the current device.
        """

        def __new__(
            cls,
            priority: int = 0,
            stream_id: int = 0,
            device_index: int = 0,
            device_type: int = 0,
            stream_ptr: int = 0,
        ) -> Self:
            if stream_ptr:
                raise NotSupportedError("torch.cuda.ExternalStream", "there are no streams of other libraries")
            if not (stream_id or device_index or device_type):
                runtime.forks.refuse_child("cudaStreamCreateWithPriority")
                device_index = shim.current_device()
                stream_id = shim.new_stream(device_index, min(priority, 0))
                runtime.worked(TorchCall.NEW_STREAM)
            stream: Self = super().__new__(
                cls, stream_id=stream_id, device_index=device_index, device_type=device_type or CUDA_DEVICE_TYPE
            )
            return stream

        @property
        def cuda_stream(self) -> int:
            return stream_pointer(self.device_index, self.stream_id)

        @property
        def native_handle(self) -> int:
            return self.cuda_stream

        @property
        def priority(self) -> int:
            return stream_priority(self.stream_id)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return PRIORITIES

        def query(self) -> bool:
            runtime.refuse_in_capture("cudaStreamQuery")
            return bool(super().query())

        def __eq__(self, other: object) -> bool:
            return isinstance(other, CudaStreamBase) and bool(super().__eq__(other))

        def __hash__(self) -> int:
            return hash((self.cuda_stream, self.device))

    CudaStreamBase.__name__ = CudaStreamBase.__qualname__ = "_CudaStreamBase"
    CudaStreamBase.__module__ = "torch._C"

    def current_stream(device: int) -> tuple[int, int, int]:
        runtime.worked(TorchCall.CURRENT_STREAM)
        device = shim.current_device() if device < 0 else runtime.checked_device(device)
        return shim.current_stream(device), device, CUDA_DEVICE_TYPE

    def default_stream(device: int) -> tuple[int, int, int]:
        runtime.worked(TorchCall.CURRENT_STREAM)
        return 0, shim.current_device() if device < 0 else runtime.checked_device(device), CUDA_DEVICE_TYPE

    def set_stream(stream_id: int = 0, device_index: int = 0, device_type: int = 0) -> None:
        runtime.checked_device(device_index)
        runtime.worked(TorchCall.SET_STREAM)
        if shim.current_device() != device_index:
            shim.set_device(device_index)
        shim.set_stream(device_index, stream_id)

    def raw_stream(device: int) -> int:
        device = shim.current_device() if device < 0 else runtime.checked_device(device)
        return stream_pointer(device, shim.current_stream(device))

    return {
        "_CudaStreamBase": CudaStreamBase,
        "_cuda_getCurrentRawStream": raw_stream,
        "_cuda_getCurrentStream": current_stream,
        "_cuda_getDefaultStream": default_stream,
        "_cuda_setStream": set_stream,
    }


def sync_debug_names(runtime: Runtime) -> dict[str, object]:
    """Returns the functions of `torch._C` for `torch.cuda.set_sync_debug_mode` on a virtual GPU, as
    `{name: function}`. All threads of the process share one mode.
    """
    shim = runtime.shim
    warned = False

    def set_mode(mode: int) -> None:
        nonlocal warned
        if not warned:
            warned = True
            warnings.warn(PROTOTYPE, UserWarning, stacklevel=2)
        if mode not in SYNC_DEBUG_MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
        shim.set_sync_debug_mode(mode)

    return {"_cuda_get_sync_debug_mode": shim.sync_debug_mode, "_cuda_set_sync_debug_mode": set_mode}
