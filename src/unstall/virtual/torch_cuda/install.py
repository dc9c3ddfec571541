"""Adds to `torch._C` what a CPU build of torch lacks, when that module has been executed and before
the module `torch.cuda` is.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from unstall.virtual.torch_cuda.attention import attention_names
from unstall.virtual.torch_cuda.blas import blas_names, tunable_names
from unstall.virtual.torch_cuda.comm import comm_names
from unstall.virtual.torch_cuda.cuda_errors import refused_names
from unstall.virtual.torch_cuda.devices import device_names
from unstall.virtual.torch_cuda.events import event_names
from unstall.virtual.torch_cuda.graphs import graph_names
from unstall.virtual.torch_cuda.host_work import log_host_work
from unstall.virtual.torch_cuda.memory import memory_names
from unstall.virtual.torch_cuda.patched_torch import (
    follow_threads,
    log_host_reads,
    make_storages,
    order_backwards,
    refuse_nvtx_profiler,
    run_uncompiled,
)
from unstall.virtual.torch_cuda.process_groups import process_group_names
from unstall.virtual.torch_cuda.profiling import profiling_names
from unstall.virtual.torch_cuda.properties import CUDA_VERSION
from unstall.virtual.torch_cuda.python_threads import order_threads
from unstall.virtual.torch_cuda.runtime import ForkGuard, Runtime
from unstall.virtual.torch_cuda.shared_storages import share_storages
from unstall.virtual.torch_cuda.streams import stream_names, sync_debug_names
from unstall.virtual.torch_cuda.tensor_types import make_tensor_types

SHIM = "unstall.virtual._shim"


def install(torch_c: ModuleType) -> None:
    """Adds to the module `torch._C` what a CUDA build has and a CPU build lacks. The shim must be loaded."""
    shim = sys.modules[SHIM]
    runtime = Runtime(torch_c, shim, ForkGuard(torch_c, shim))
    vars(torch_c).update(names_for(runtime))
    for name in ("_cudart", "_cudnn", "_nvtx"):
        sys.modules[f"torch._C.{name}"] = getattr(torch_c, name)
    importlib.import_module("torch.version").cuda = CUDA_VERSION  # type: ignore[attr-defined]


def names_for(runtime: Runtime) -> dict[str, object]:
    """Returns all that is added to `torch._C` for a virtual GPU, as `{name: value}`."""
    return {
        **refused_names(),
        **tunable_names(),
        **device_names(runtime),
        **stream_names(runtime),
        **event_names(runtime),
        **sync_debug_names(runtime),
        **memory_names(runtime),
        **graph_names(runtime),
        **blas_names(runtime),
        **attention_names(runtime),
        **comm_names(),
        **process_group_names(runtime),
        **profiling_names(runtime),
        "_has_cuda": True,
        "_has_cudnn": True,
        "_has_magma": True,
    }


def finish(torch: ModuleType) -> None:
    """Replaces functions of torch itself. To be called when torch has been imported."""
    shim = sys.modules[SHIM]
    make_storages(torch, shim)
    share_storages(torch, shim)
    make_tensor_types(torch, shim)
    run_uncompiled(torch)
    refuse_nvtx_profiler(torch)
    log_host_reads(torch, shim)
    follow_threads(torch, shim)
    order_backwards(shim)
    order_threads(shim)
    log_host_work(torch, shim)
