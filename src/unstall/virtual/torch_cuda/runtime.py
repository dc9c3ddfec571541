"""What the functions of `torch._C` on a virtual GPU share: the shim, the simulator, the devices,
and whether this process was forked.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from unstall.virtual.log import LogCode, TorchCall
from unstall.virtual.torch_cuda.cuda_errors import (
    CUDA_DEVICE_TYPE,
    NO_SUCH_DEVICE,
    NotSupportedError,
    accelerator_error,
    cuda_error,
)
from unstall.virtual.torch_cuda.properties import H200, DeviceProperties

if TYPE_CHECKING:
    import torch

    from unstall.virtual.allocator.caching import CachingAllocator
    from unstall.virtual.simulation.simulator import Simulator

CAPTURING = "operation not permitted when stream is capturing"
SET_REQUIRES_DEVICE_INIT = "_ZN5torch5utils24set_requires_device_initEN3c1010DeviceTypeEb"
"""The symbol of torch::utils::set_requires_device_init(DeviceType, bool). If it is called with
True, the next function in C++ that makes a tensor initialises CUDA again.
"""


class Shim(Protocol):
    """The functions of the shim that `torch_cuda` calls. `device` is the index of a device,
    `stream` c10's number of one of its streams.
    """

    def append(
        self, code: int, device: int, stream: int, a: int, b: int, id_or_name: int | str | None, flags: int
    ) -> None: ...

    def device_count(self) -> int: ...

    def default_generator(self, device: int) -> torch.Generator: ...

    def current_device(self) -> int: ...

    def set_device(self, device: int) -> None: ...

    def current_stream(self, device: int) -> int: ...

    def set_stream(self, device: int, stream: int) -> None: ...

    def new_stream(self, device: int, priority: int) -> int: ...

    def sync_device(self, device: int) -> None: ...

    def is_capturing(self, device: int, stream: int) -> bool: ...

    def set_sync_debug_mode(self, mode: int) -> None: ...

    def sync_debug_mode(self) -> int: ...

    def capture_begin(self, graph: int, device: int, stream: int, pool: int, mode: str) -> None: ...

    def refused_in_capture(self, device: int, stream: int) -> bool:
        """Returns whether this stream must not be waited for, because a CUDA graph is being
        captured. If so, makes the capture invalid.
        """

    def refuse_forks(self) -> None:
        """Makes the devices unusable in child processes that are forked from now on."""

    def capture_end(self, graph: int) -> None: ...

    def replay(self, graph: int, device: int, stream: int) -> None: ...

    def free_graph(self, graph: int) -> None: ...

    def define_nccl(self, c10d: ModuleType) -> None:
        """Adds the class ProcessGroupNCCL to the module `c10d`."""

    def finish_messages(self) -> None:
        """Waits until all messages of process groups over NCCL have arrived."""


def worked(shim: Shim, call: TorchCall, times: int = 1) -> None:
    """Adds to the log that torch has worked on the host: what `call` stands for, so many times."""
    shim.append(int(LogCode.CALL), -1, 0, times, 0, None, int(call))


@dataclass(slots=True)
class _Attached:
    simulator: Simulator | None = None
    devices: tuple[DeviceProperties, ...] = ()
    hidden: bool = False


_attached = _Attached()


def attach(simulator: Simulator, devices: Sequence[DeviceProperties], *, hidden: bool = False) -> None:
    """Connects the simulator of this process to `torch.cuda`. To be called before `torch.cuda` is
    first used.

    Args:
        simulator: The simulator.
        devices: The properties of the virtual devices, by index.
        hidden: Whether the program sees none of them.
    """
    _attached.simulator = simulator
    _attached.devices = tuple(devices)
    _attached.hidden = hidden


class ForkGuard:
    """Makes the devices unusable in child processes that are forked after this process has used
    CUDA. That is so with a real GPU, too. Child processes that are spawned can use the devices.
    """

    def __init__(self, torch_c: ModuleType, shim: Shim) -> None:
        self._torch_c, self._shim = torch_c, shim
        self._require_init: Callable[[int, bool], object] | None = None
        self._armed = False
        self.is_child = False

    def arm(self) -> None:
        """Makes the devices unusable in child processes that are forked from now on."""
        if self._armed:
            return
        self._armed = True
        self._shim.refuse_forks()
        library = Path(str(self._torch_c.__file__)).parent / "lib" / "libtorch_python.so"
        with suppress(AttributeError, OSError):
            self._require_init = getattr(ctypes.CDLL(str(library)), SET_REQUIRES_DEVICE_INIT)
        os.register_at_fork(after_in_child=self._after_fork)

    def refuse_child(self, call: str) -> None:
        """Raises CUDA's initialization error if this process was forked after its parent called
        `arm`. `call` is the name of the CUDA call that fails.
        """
        if self.is_child:
            raise cuda_error(self._torch_c, "initialization error", call)

    def _after_fork(self) -> None:
        self.is_child = True
        if self._require_init is not None:
            self._require_init(CUDA_DEVICE_TYPE, True)


@dataclass(slots=True)
class Captures:
    """The numbers of the CUDA graphs that are being captured now."""

    running: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the functions of `torch._C` on a virtual GPU share.

    Attributes:
        torch_c: The module `torch._C`.
        shim: The shim.
        forks: Makes the devices unusable in forked processes.
        captures: The CUDA graphs that are being captured.
    """

    torch_c: ModuleType
    shim: Shim
    forks: ForkGuard
    captures: Captures = field(default_factory=Captures)

    @property
    def simulator(self) -> Simulator:
        """The simulator of this process.

        Raises:
            NotSupportedError: No simulator is attached.
        """
        if _attached.simulator is None:
            raise NotSupportedError("this figure of torch.cuda", "nothing simulates what runs in this process")
        return _attached.simulator

    @property
    def devices(self) -> tuple[DeviceProperties, ...]:
        """The properties of the devices, by index. If no properties were attached, those of H200s.

        Raises:
            ValueError: Properties were attached for more or fewer devices than the shim has.
        """
        count = self.shim.device_count()
        devices = _attached.devices or tuple(DeviceProperties.of(H200, index) for index in range(count))
        if len(devices) != count:
            raise ValueError(f"the shim has {count} devices, {len(devices)} were described")
        return devices

    @property
    def hidden(self) -> bool:
        """Whether the program sees no device."""
        return _attached.hidden

    def checked_device(self, device: int) -> int:
        """Returns the index `device` if there is such a device.

        Raises:
            torch.AcceleratorError: There is no such device.
        """
        if not 0 <= device < self.shim.device_count():
            raise accelerator_error(self.torch_c, NO_SUCH_DEVICE)
        return device

    @contextmanager
    def allocator(self, device: int) -> Iterator[CachingAllocator]:
        """Yields the caching allocator of a device, after all that the program did so far.

        Raises:
            torch.AcceleratorError: There is no such device.
        """
        with self.simulator.allocator(self.checked_device(device)) as allocator:
            yield allocator

    def mem_get_info(self, device: int) -> tuple[int, int]:
        """Returns `(free, total)`, the free memory of a device and all of its memory in bytes. Memory that the caching
        allocator has reserved is not free.

        Raises:
            torch.AcceleratorError: There is no such device.
        """
        self.worked(TorchCall.MEMORY_INFO)
        with self.allocator(device) as allocator:
            return allocator.mem_get_info()

    def current_stream(self) -> tuple[int, int]:
        """Returns `(device, stream)`: the index of the current device, and c10's number of its current stream."""
        device = self.shim.current_device()
        return device, self.shim.current_stream(device)

    def log(self, code: LogCode, *, a: int = 0, b: int = 0, name: str | None = None, flags: int = 0) -> None:
        """Adds a record for the current stream to the log (the shim's records of what the program
        asks of its GPU). The meaning of `a`, `b`, `name` and `flags` depends on `code`: see
        `LogCode`.
        """
        device, stream = self.current_stream()
        self.shim.append(int(code), device, stream, a, b, name, flags)

    def worked(self, call: TorchCall, times: int = 1) -> None:
        """Does the same as the function `worked`."""
        worked(self.shim, call, times)

    def cuda_begins(self) -> None:
        """Tells the simulator that the program initialises CUDA, if a simulator is attached."""
        if _attached.simulator is not None:
            _attached.simulator.cuda_begins()

    def graph_is_empty(self, graph: int) -> bool:
        """Returns whether the capture of a CUDA graph has ended without work for the device. Returns False if no
        simulator is attached, since it is not known then.
        """
        return _attached.simulator is not None and _attached.simulator.graph_is_empty(graph)

    def initialise(self) -> None:
        """Initialises torch.cuda unless that has been done. To be called first in each function that needs a device."""
        sys.modules["torch.cuda"]._lazy_init()

    def refuse_in_capture(self, call: str) -> None:
        """Raises an error if the current stream must not be waited for, because a CUDA graph is
        being captured.

        `call` is the name of the CUDA call that waits.

        Raises:
            torch.AcceleratorError: The stream must not be waited for.
        """
        if self.captures.running and self.shim.refused_in_capture(*self.current_stream()):
            raise cuda_error(self.torch_c, CAPTURING, call)
