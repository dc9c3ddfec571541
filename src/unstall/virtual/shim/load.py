"""Loads the shim (the C++ part of the virtual GPU) into this process. It must be loaded before
torch is imported, because torch looks for CUDA only while it is imported.

`shim/module.cpp` has the functions of the shim, such as `configure` and `take`.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import sys
import threading
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType

from unstall.guest.imports import when_imported
from unstall.virtual.shim import build as building
from unstall.virtual.shim.installed import Torch, VirtualGpuError, installed_torch
from unstall.virtual.torch_cuda.install import finish, install

NAME = "unstall.virtual._shim"
_AUTOGRAD_ENDS_S = 0.02
# In the order of their dependencies. Loaded globally, since the shim is not linked against them.
LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libtorch.so", "libtorch_python.so")


def load(devices: int = 1, numerics: str = "real", simulator: object | None = None) -> ModuleType:
    """Give this process virtual GPUs. Call this before torch is imported.

    Args:
        devices: The number of virtual GPUs.
        numerics: "real" computes all values. "skip" computes only the shapes of large tensors.
            "device" rounds and adds up values as a GPU does.
        simulator: The object that answers the shim's questions, such as whether an event is
            complete.

    Returns:
        The shim, as a Python module.

    Raises:
        VirtualGpuError: torch is imported already, or the shim cannot run on this machine.
    """
    if "torch" in sys.modules:
        raise VirtualGpuError("the virtual GPU must be loaded before torch is imported")
    torch = installed_torch()
    path = building.build(torch)
    for library in LIBRARIES:
        ctypes.CDLL(str(torch.root / "lib" / library), mode=ctypes.RTLD_GLOBAL)
    shim = _import_usable(torch, path)
    shim.configure(devices, numerics, simulator)
    when_imported("torch._C", lambda: install(sys.modules["torch._C"]))
    when_imported("torch", lambda: finish(sys.modules["torch"]))
    atexit.register(_let_autograd_end)
    return shim


def _let_autograd_end() -> None:
    """Waits for 20 ms when the process ends. In this time, the autograd thread of each device frees
    the Python objects of the last backward pass. If such a thread asks for the GIL while the
    interpreter ends, the process is aborted. A process with a real GPU can be aborted in the same
    way.
    """
    threading.Event().wait(_AUTOGRAD_ENDS_S)


def _import_usable(torch: Torch, path: Path) -> ModuleType:
    """Imports the shim at `path`. If this is the shim that came with the package, and it does not
    load on this machine, prints a message, compiles another shim, and imports that.
    """
    if path.parent != building.PREBUILT:
        return _import(path)
    try:
        return _import(path)
    except ImportError as error:  # libraries of the system that are too old, for one
        why = str(error).replace(str(path), path.name)
        print(f"unstall: the virtual GPU that came with unstall does not load here: {why}", file=sys.stderr, flush=True)
        return _import(building.compiled(torch))


def _import(path: Path) -> ModuleType:
    loader = ExtensionFileLoader(NAME, str(path))
    shim = importlib.util.module_from_spec(ModuleSpec(NAME, loader, origin=str(path)))
    loader.exec_module(shim)
    sys.modules[NAME] = shim
    return shim
