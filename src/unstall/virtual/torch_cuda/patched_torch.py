"""Functions of torch itself that are replaced once it is imported.

- `torch.compile` gives back what it is given, with one warning: its kernels are machine code of a real GPU, which can
  neither run here nor be timed. The program still runs, with the same values; its times are those of the operators one
  by one. A refusal would stop programs for an optimisation that they do not depend on.
- `torch.UntypedStorage` can be made and resized on virtual devices, as copies and saved files need: a CPU build's own
  code cannot.
- `Tensor.tolist` is logged: it reads pinned memory without an operator, so its races would not be seen.
- `torch.autograd.profiler.emit_nvtx` is refused by its name.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from unstall.virtual.torch_cuda.cuda_errors import NotSupportedError

if TYPE_CHECKING:
    from types import ModuleType

    import torch

TEXT = (
    "torch.compile does not compile for the virtual GPU: what it is given runs operator by operator, and the predicted "
    "times are those of a run without torch.compile"
)


class StorageShim(Protocol):
    """The shim's functions that these call."""

    def resize_storage(self, storage: torch.UntypedStorage, bytes: int) -> None: ...

    def host_reads(self, tensor: torch.Tensor, name: str) -> None: ...


@dataclass(slots=True)
class _Asked:
    compile: bool = False


_asked = _Asked()


def notes() -> tuple[str, ...]:
    """The notes for a report of this process's run: `TEXT` if something was to be compiled."""
    return (TEXT,) if _asked.compile else ()


class NotCompiledWarning(UserWarning):
    """The argument of torch.compile runs operator by operator."""


def run_uncompiled(module: ModuleType) -> None:
    """Have `torch.compile` give back its argument."""
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
    """Have `torch.UntypedStorage` be made on virtual devices, and be resized there."""
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
    """Log `Tensor.tolist`, which reads at once. `Tensor.numpy` reads nothing yet, so it is not logged."""
    tolist = module.Tensor.tolist

    @functools.wraps(tolist)
    def logged(self: torch.Tensor) -> list[Any]:
        if isinstance(self, module.Tensor) and self.device.type == "cpu":
            shim.host_reads(self, "Tensor.tolist")
        values: list[Any] = tolist(self)
        return values

    module.Tensor.tolist = logged


def refuse_nvtx_profiler(module: ModuleType) -> None:
    """Refuse `torch.autograd.profiler.emit_nvtx`; other profilers go on."""
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
