"""Adds NCCL to torch.distributed: the shim's class `ProcessGroupNCCL`, which a CPU build of torch lacks."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Protocol

from unstall.virtual.torch_cuda.runtime import Runtime

_C10D = "torch._C._distributed_c10d"
_TIMEOUT = timedelta(minutes=10)
"""The time after which an operation of a process group fails, unless the program says otherwise:
kProcessGroupNCCLDefaultTimeout of ProcessGroupNCCL.hpp.
"""


class NcclShim(Protocol):
    """The functions of the shim that this module calls."""

    def define_nccl(self, c10d: ModuleType) -> None: ...

    def finish_messages(self) -> None: ...


def process_group_names(runtime: Runtime) -> dict[str, object]:
    """Returns the function of `torch._C` that makes the bindings of torch.distributed, as `{name:
    function}`. It also adds NCCL to these bindings.

    Returns {} if torch was built without torch.distributed.
    """
    make: Callable[[], bool] | None = getattr(runtime.torch_c, "_c10d_init", None)
    if make is None:
        return {}

    def c10d_init() -> bool:
        made = make()
        _add_nccl(sys.modules[_C10D], runtime.shim)
        return made

    return {"_c10d_init": c10d_init}


def _add_nccl(c10d: ModuleType, shim: NcclShim) -> None:
    if hasattr(c10d, "ProcessGroupNCCL"):
        return
    shim.define_nccl(c10d)
    atexit.register(shim.finish_messages)
    options = c10d.ProcessGroupNCCL.Options
    # Fields of ncclConfig_t that programs set have no effect here.
    options.config = property(lambda self: vars(self).setdefault("_config", SimpleNamespace()))
    c10d._DEFAULT_PG_NCCL_TIMEOUT = _TIMEOUT  # type: ignore[attr-defined]
