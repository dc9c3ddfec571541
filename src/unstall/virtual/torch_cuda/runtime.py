"""The virtual machine that the functions of `torch._C` speak for."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType

from unstall.virtual.log import Code
from unstall.virtual.torch_cuda import attached
from unstall.virtual.torch_cuda.errors import NO_SUCH_DEVICE, accelerator_error, cuda_error
from unstall.virtual.torch_cuda.forks import ForkGuard
from unstall.virtual.torch_cuda.keeper import Keeper, Shim
from unstall.virtual.torch_cuda.properties import DeviceProperties

CAPTURING = "operation not permitted when stream is capturing"


@dataclass(slots=True)
class Captures:
    """The graphs that are being captured."""

    running: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Runtime:
    """`torch_c` is the module `torch._C`."""

    torch_c: ModuleType
    shim: Shim
    forks: ForkGuard
    captures: Captures = field(default_factory=Captures)

    @property
    def keeper(self) -> Keeper:
        return attached.keeper()

    @property
    def devices(self) -> tuple[DeviceProperties, ...]:
        return attached.devices(self.shim.device_count())

    def checked_device(self, device: int) -> int:
        """The device itself; torch.AcceleratorError where there is none of that index."""
        if not 0 <= device < self.shim.device_count():
            raise accelerator_error(self.torch_c, NO_SUCH_DEVICE)
        return device

    def current_stream(self) -> tuple[int, int]:
        """The current device and its current stream."""
        device = self.shim.current_device()
        return device, self.shim.current_stream(device)

    def log(self, code: Code, *, a: int = 0, b: int = 0, name: str | None = None) -> None:
        """A record on the current stream."""
        device, stream = self.current_stream()
        self.shim.append(int(code), device, stream, a, b, name, 0)

    def initialise(self) -> None:
        """What every call that needs a device does first: torch.cuda's own lazy initialisation."""
        sys.modules["torch.cuda"]._lazy_init()

    def refuse_in_capture(self, call: str) -> None:
        """torch.AcceleratorError where `call`, which waits for the current stream, spoils a graph's capture."""
        if self.captures.running and self.shim.refused_in_capture(*self.current_stream()):
            raise cuda_error(self.torch_c, CAPTURING, call)
