"""Replaces functions of torch after it was imported.

- `torch.compile` returns its argument unchanged, with a warning. Compiled kernels are machine code
  of a real GPU: they cannot run here, and their times cannot be predicted. The program computes the
  same values, in the time that the separate operators take. An error would stop programs that do
  not depend on the optimisation.
- `torch.UntypedStorage` can be made and resized on virtual devices, which copies and the loading of
  saved files need. A CPU build cannot do this.
- `Tensor.tolist` is logged. It reads pinned memory without an operator, so a race with that read
  would be missed otherwise.
- `torch.autograd.profiler.emit_nvtx` raises an error that names it.
- A backward pass ends when autograd's threads have freed its last tensors.
- `torch.set_num_threads` tells the shim the number of threads. The modelled time of CPU operators
  depends on it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from unstall.guest.backward_passes import ENGINE, engine_modules
from unstall.guest.patching import wrap_after
from unstall.virtual.torch_cuda.cuda_errors import NotSupportedError

if TYPE_CHECKING:
    from types import ModuleType

    import torch

TEXT = (
    "torch.compile does not compile for the virtual GPU: what it is given runs operator by operator, and the predicted "
    "times are those of a run without torch.compile"
)


class StorageShim(Protocol):
    """The functions of the shim that this module calls."""

    def resize_storage(self, storage: torch.UntypedStorage, bytes: int) -> None: ...

    def set_threads(self, count: int) -> None: ...

    def let_autograd_end(self) -> None: ...

    def host_reads(self, tensor: torch.Tensor, name: str) -> None: ...


@dataclass(slots=True)
class _Asked:
    compile: bool = False


_asked = _Asked()


def notes() -> tuple[str, ...]:
    """Returns the notes on this process for its report: one if the program called torch.compile, otherwise none."""
    return (TEXT,) if _asked.compile else ()


class NotCompiledWarning(UserWarning):
    """Warns that the argument of torch.compile is not compiled and runs operator by operator."""


def run_uncompiled(module: ModuleType) -> None:
    """Makes `torch.compile` return its argument, with a warning. `module` is torch."""
    compile_ = module.compile

    @functools.wraps(compile_)
    def compile(model: Callable[..., Any] | None = None, **options: Any) -> Any:
        if options.get("disable"):
            return compile_(model, **options)
        if model is None:
            return functools.partial(compile, **options)
        _asked.compile = True
        warnings.warn(TEXT, NotCompiledWarning, stacklevel=2)
        return compile_(model, **{**options, "disable": True})

    module.compile = compile  # type: ignore[attr-defined]


def make_storages(module: ModuleType, shim: StorageShim) -> None:
    """Lets programs make and resize a `torch.UntypedStorage` on virtual devices. `module` is torch."""
    storage = module.UntypedStorage
    make, resize = storage.__new__, storage.resize_

    def new(kind: type[torch.UntypedStorage], *arguments: Any, **named: Any) -> torch.UntypedStorage:
        device = named.get("device")
        if device is None or module.device(device).type != "cuda":
            made: torch.UntypedStorage = make(kind, *arguments, **named)
            return made
        size = arguments[0] if arguments else named.get("size", 0)
        values: torch.Tensor = (
            module.empty(size, dtype=module.uint8, device=device)
            if isinstance(size, int)
            else module.tensor(list(size), dtype=module.uint8, device=device)
        )
        return values.untyped_storage()

    def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type != "cuda":
            resize(self, size)
        else:
            shim.resize_storage(self, size)
        return self

    storage.__new__ = staticmethod(new)
    storage.resize_ = resize_


def log_host_reads(module: ModuleType, shim: StorageShim) -> None:
    """Makes `Tensor.tolist` write a record to the log (what the program asks of its GPU), because
    `Tensor.tolist` reads the values of the tensor. `Tensor.numpy` writes no record: it only shares
    the tensor's memory. `module` is torch.
    """

    def read(tensor: torch.Tensor) -> None:
        if tensor.device.type == "cpu":
            shim.host_reads(tensor, "Tensor.tolist")

    wrap_after(module.Tensor, "tolist", read)


def follow_threads(module: ModuleType, shim: StorageShim) -> None:
    """Tells the shim how many threads the program sets for CPU operators. `module` is torch.

    If the program sets no number, torch uses the cores of this machine, and the model those of the
    modelled host.
    """
    set_threads = module.set_num_threads

    @functools.wraps(set_threads)
    def set_num_threads(count: int) -> None:
        set_threads(count)
        shim.set_threads(count)

    module.set_num_threads = set_num_threads  # type: ignore[attr-defined]


def order_backwards(shim: StorageShim) -> None:
    """Makes a backward pass return, or raise, only when autograd's threads have freed its last tensors, which they do
    after they have woken the caller. So memory is the same in each run.
    """

    def ended(*_: object, **__: object) -> None:
        shim.let_autograd_end()

    for module in engine_modules():
        wrap_after(module, ENGINE, ended, always=True)


def refuse_nvtx_profiler(module: ModuleType) -> None:
    """Makes `torch.autograd.profiler.emit_nvtx` raise NotSupportedError. All other profilers still
    work. `module` is torch.
    """
    profiler = module.autograd.profiler
    enable = profiler._enable_profiler

    @functools.wraps(enable)
    def enable_profiler(*arguments: object) -> None:
        try:
            enable(*arguments)
        except RuntimeError as error:
            if "NVTX" not in str(error):
                raise
            why = "a timeline names the operators without it"
            raise NotSupportedError("torch.autograd.profiler.emit_nvtx", why) from None

    profiler._enable_profiler = enable_profiler
