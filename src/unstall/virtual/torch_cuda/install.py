"""Putting the names into `torch._C`, right after it was executed and before `torch.cuda` is."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from unstall.virtual.torch_cuda.attention import attention_names
from unstall.virtual.torch_cuda.blas import blas_names
from unstall.virtual.torch_cuda.builds import CUDA_VERSION
from unstall.virtual.torch_cuda.comm import comm_names
from unstall.virtual.torch_cuda.compiling import run_uncompiled
from unstall.virtual.torch_cuda.devices import device_names
from unstall.virtual.torch_cuda.events import event_names
from unstall.virtual.torch_cuda.forks import ForkGuard
from unstall.virtual.torch_cuda.graphs import graph_names
from unstall.virtual.torch_cuda.host_reads import log_host_reads
from unstall.virtual.torch_cuda.memory import memory_names
from unstall.virtual.torch_cuda.profiling import profiling_names, refuse_nvtx_profiler
from unstall.virtual.torch_cuda.refuse import refused_names
from unstall.virtual.torch_cuda.runtime import Runtime
from unstall.virtual.torch_cuda.streams import stream_names
from unstall.virtual.torch_cuda.sync_debug import SyncDebug, sync_debug_names
from unstall.virtual.torch_cuda.tunable import tunable_names

SHIM = "unstall.virtual._shim"


def install(torch_c: ModuleType) -> None:
    """Gives `torch._C` what a CUDA build has beyond a CPU build, over the shim that is loaded."""
    shim = sys.modules[SHIM]
    runtime = Runtime(torch_c, shim, ForkGuard(torch_c, shim))
    vars(torch_c).update(names_for(runtime))
    for name in ("_cudart", "_cudnn", "_nvtx"):
        sys.modules[f"torch._C.{name}"] = getattr(torch_c, name)
    importlib.import_module("torch.version").cuda = CUDA_VERSION  # type: ignore[attr-defined]


def names_for(runtime: Runtime) -> dict[str, object]:
    """All names of `torch._C` with what they stand for."""
    debug = SyncDebug(runtime)
    return {
        **refused_names(),
        **tunable_names(),
        **device_names(runtime),
        **stream_names(runtime, debug),
        **event_names(runtime),
        **sync_debug_names(debug),
        **memory_names(runtime),
        **graph_names(runtime),
        **blas_names(runtime),
        **attention_names(runtime),
        **comm_names(),
        **profiling_names(runtime),
        "_has_cuda": True,
        "_has_cudnn": True,
        "_has_magma": True,
    }


def finish(torch: ModuleType) -> None:
    """What is left once torch has been imported."""
    run_uncompiled(torch)
    refuse_nvtx_profiler(torch)
    log_host_reads(torch, sys.modules[SHIM])
