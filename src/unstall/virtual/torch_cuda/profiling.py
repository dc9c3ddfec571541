"""`torch.cuda.nvtx` and `torch.cuda.cudart()`."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType

from unstall.virtual.log import NVTX, LogCode
from unstall.virtual.torch_cuda.cuda_errors import refusing
from unstall.virtual.torch_cuda.runtime import Runtime

NOTHING_TO_POP = -2
ERROR_TEXTS = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    400: "invalid resource handle",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    710: "device-side assert triggered",
    719: "unspecified launch failure",
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture",
    907: "operation not permitted on an event last recorded in a capturing stream",
    999: "unknown error",
}


class CudaError(IntEnum):
    """CUDA's cudaError_t. Any number is a value of it, even one that has no name here."""

    success = 0

    @classmethod
    def _missing_(cls, value: object) -> CudaError | None:
        if not isinstance(value, int):
            return None
        other = int.__new__(cls, value)
        other._name_, other._value_ = str(value), value
        return other


class Ranges:
    """Writes NVTX ranges as annotations to the log (the shim's records of what the program asks of
    its GPU).

    A range of `push` and `pop` becomes one annotation. A range of `start` and `end` may begin on
    one thread and end on another. It becomes two annotations without length: one where it begins,
    one where it ends.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open = threading.local()
        self._handles = itertools.count(1)
        self._started: dict[int, str] = {}

    def push(self, message: str) -> int:
        """Begins a range on this thread. Returns how many ranges were open on it before."""
        depth: int = getattr(self._open, "depth", 0)
        self._runtime.log(LogCode.MARK_BEGIN, name=str(message), flags=NVTX)
        self._open.depth = depth + 1
        return depth

    def pop(self) -> int:
        """Ends the innermost range of this thread. Returns how many are still open, or a negative
        number if none was open.
        """
        depth: int = getattr(self._open, "depth", 0)
        if depth == 0:
            return NOTHING_TO_POP
        self._runtime.log(LogCode.MARK_END, flags=NVTX)
        self._open.depth = depth - 1
        return depth - 1

    def mark(self, message: str) -> None:
        """Adds an annotation without length."""
        self._runtime.log(LogCode.MARK_BEGIN, name=str(message), flags=NVTX)
        self._runtime.log(LogCode.MARK_END, flags=NVTX)

    def start(self, message: str) -> int:
        """Begins a range that may end on another thread. Returns a number by which it is ended."""
        handle = next(self._handles)
        self._started[handle] = str(message)
        self.mark(f"{message} begins")
        return handle

    def end(self, handle: int) -> None:
        """Ends the range for which `start` returned `handle`. Does nothing if there is none."""
        message = self._started.pop(handle, None)
        if message is not None:
            self.mark(f"{message} ends")


def profiling_names(runtime: Runtime) -> dict[str, object]:
    """Returns the modules of `torch._C` for NVTX and for the CUDA runtime on a virtual GPU, as `{name: module}`."""
    ranges = Ranges(runtime)
    return {"_nvtx": _nvtx_module(ranges), "_cudart": _cudart_module(runtime, ranges)}


def _nvtx_module(ranges: Ranges) -> ModuleType:
    module = ModuleType("torch._C._nvtx", "libNvToolsExt.so bindings")
    vars(module).update(
        rangePushA=ranges.push,
        rangePop=ranges.pop,
        rangeStartA=ranges.start,
        rangeEnd=ranges.end,
        markA=ranges.mark,
        deviceRangeStart=refusing("torch.cuda.nvtx._device_range_start"),
        deviceRangeEnd=refusing("torch.cuda.nvtx._device_range_end"),
    )
    return module


def _cudart_module(runtime: Runtime, ranges: Ranges) -> ModuleType:
    def profiler_call(name: str) -> Callable[[], CudaError]:
        def call() -> CudaError:
            ranges.mark(name)
            return CudaError.success

        return call

    module = ModuleType("torch._C._cudart", "libcudart.so bindings")
    vars(module).update(
        cudaError=CudaError,
        cudaGetErrorString=lambda error: ERROR_TEXTS.get(int(error), "unrecognized error code"),
        cudaProfilerStart=profiler_call("cudaProfilerStart"),
        cudaProfilerStop=profiler_call("cudaProfilerStop"),
        cudaMemGetInfo=runtime.mem_get_info,
        cudaHostRegister=refusing("cudaHostRegister", "pin memory by torch.Tensor.pin_memory()"),
        cudaHostUnregister=refusing("cudaHostUnregister", "pin memory by torch.Tensor.pin_memory()"),
        cudaStreamCreate=refusing("cudaStreamCreate", "make streams by torch.cuda.Stream()"),
        cudaStreamDestroy=refusing("cudaStreamDestroy", "make streams by torch.cuda.Stream()"),
    )
    return module
