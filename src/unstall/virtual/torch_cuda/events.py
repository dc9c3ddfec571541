"""The events of `torch.cuda`: `_CudaEventBase`, with the errors of c10/cuda/CUDAEvent.h."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Never, Self

from unstall.virtual.log import TorchCall
from unstall.virtual.torch_cuda.cuda_errors import NotSupportedError, cuda_error
from unstall.virtual.torch_cuda.runtime import Runtime

if TYPE_CHECKING:
    import torch

CAPTURED = "operation not permitted on an event last recorded in a capturing stream"
NO_OTHER_PROCESS = "each process has a virtual GPU of its own"


def event_names(runtime: Runtime) -> dict[str, object]:
    """Returns the class of `torch._C` for events of a virtual GPU, as `{name: class}`."""
    torch_c = runtime.torch_c

    class CudaEventBase(torch_c.Event):  # type: ignore[name-defined, misc]
        """A CUDA event, which is created when it is first recorded, as in c10."""

        _recorded_on: int | None = None
        _in_capture = False

        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
        ) -> Self:
            if interprocess:
                raise NotSupportedError("torch.cuda.Event(interprocess=True)", NO_OTHER_PROCESS)
            if external:
                raise NotSupportedError("torch.cuda.Event(external=True)")
            event: Self = super().__new__(
                cls, device="cuda", enable_timing=bool(enable_timing), blocking=bool(blocking)
            )
            event._enable_timing = bool(enable_timing)
            runtime.worked(TorchCall.NEW_EVENT)
            return event

        @classmethod
        def from_ipc_handle(cls, device: torch.device, handle: bytes) -> Never:
            raise NotSupportedError("torch.cuda.Event.from_ipc_handle", NO_OTHER_PROCESS)

        def ipc_handle(self) -> bytes:
            raise NotSupportedError("torch.cuda.Event.ipc_handle", NO_OTHER_PROCESS)

        @property
        def cuda_event(self) -> int:
            return int(self.event_id)

        @property
        def device(self) -> torch.device | None:
            return None if self._recorded_on is None else super().device

        def record(self, stream: torch.Stream | None = None) -> None:
            if stream is not None and self._recorded_on not in (None, stream.device_index):
                raise RuntimeError(
                    f"Event device {self._recorded_on} does not match recording stream's device {stream.device_index}."
                )
            device, number = (stream.device_index, stream.stream_id) if stream is not None else runtime.current_stream()
            super().record(*() if stream is None else (stream,))
            self._recorded_on = device
            self._in_capture = runtime.shim.is_capturing(device, number)

        def wait(self, stream: torch.Stream | None = None) -> None:
            if self._recorded_on is not None:
                super().wait(*() if stream is None else (stream,))

        def query(self) -> bool:
            self._refuse_captured("cudaEventQuery")
            return self._recorded_on is None or bool(super().query())

        def synchronize(self) -> None:
            self._refuse_captured("cudaEventSynchronize")
            if self._recorded_on is not None:
                super().synchronize()

        def elapsed_time(self, end_event: CudaEventBase) -> float:
            if not (self._enable_timing and getattr(end_event, "_enable_timing", True)):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if not (self.event_id and end_event.event_id):
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            if not (self.query() and end_event.query()):
                raise RuntimeError("Both events must be completed before calculating elapsed time.")
            return runtime.simulator.elapsed_ms(_number_of(self), _number_of(end_event))

        def _refuse_captured(self, call: str) -> None:
            if self._in_capture:
                raise cuda_error(torch_c, CAPTURED, call)

    def _number_of(event: torch.Event) -> int:
        """Returns the number that the log has for an event. c10's handle of the event points to it.

        It is read because torch.Event.elapsed_time() does not accept events of a subclass.
        """
        return ctypes.c_int64.from_address(event.event_id).value

    CudaEventBase.__name__ = CudaEventBase.__qualname__ = "_CudaEventBase"
    CudaEventBase.__module__ = "torch._C"
    return {"_CudaEventBase": CudaEventBase}
