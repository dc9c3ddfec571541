"""Finds the streams on which the operators of a function run. Can make each operator wait for the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from unstall.fix.tensors.nesting import tensors_in
from unstall.rounding.operators import Call

_HOST = "host"
_COPIES = ("aten::copy_", "aten::_to_copy", "aten::_foreach_copy_")


class Streams:
    """The streams on which operators on CUDA tensors ran. The host counts as one of these streams
    if a copy ran asynchronously to the host.
    """

    def __init__(self) -> None:
        self._seen: set[object] = set()

    @property
    def several(self) -> bool:
        """Whether some work could overlap with other work. If it could, there may be races."""
        return len(self._seen) > 1

    @property
    def any(self) -> bool:
        """Whether an operator had a CUDA tensor."""
        return bool(self._seen)

    def noting(self, call: Call) -> Call:
        """Returns a function that calls operators by `call`, and notes the current stream of each device that the
        operators use.
        """

        def noted(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            result = call(func, args, kwargs)
            for device in {each.device.index for each in tensors_in((result, args, kwargs)) if each.is_cuda}:
                torch_c: Any = torch._C
                self._seen.add((device, torch_c._cuda_getCurrentRawStream(device)))
                if func.name().partition(".")[0] in _COPIES and (True in args[2:] or kwargs.get("non_blocking")):
                    self._seen.add(_HOST)
            return result

        return noted


def one_by_one(call: Call) -> Call:
    """Returns a function that calls an operator by `call`, and that waits for the device before and after the call."""

    def waits(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        wait_for_device()
        result = call(func, args, kwargs)
        wait_for_device()
        return result

    return waits


def wait_for_device() -> None:
    """Waits until all devices that the program uses have done their work. Does nothing during the
    capture of a CUDA graph.
    """
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        count = torch.cuda.device_count()
        for device in range(count):
            if count == 1 or torch.cuda.memory_reserved(device):
                torch.cuda.synchronize(device)
