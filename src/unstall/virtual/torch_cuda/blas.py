"""What torch asks of cuBLAS, cuSOLVER, cuDNN and `torch.cuda.tunable`: versions, sizes of workspaces, and switches."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType

from unstall.virtual.torch_cuda.properties import CUDNN_VERSION
from unstall.virtual.torch_cuda.runtime import Runtime

KIB = 1 << 10
HOPPER = 9
HANDLES = 0x5500_0000_0000
BENCHMARK_LIMIT = 10
"""torch's default of torch.backends.cudnn.benchmark_limit."""


class RnnMode(IntEnum):
    """The values of cuDNN's cudnnRNNMode_t."""

    rnn_relu = 0
    rnn_tanh = 1
    lstm = 2
    gru = 3


def workspace_bytes(major: int, environment: str) -> int:
    """Returns the size of cuBLAS's workspace in bytes, as aten/src/ATen/cuda/CublasHandlePool.cpp
    does.

    `environment` is the value of the variable CUBLAS_WORKSPACE_CONFIG: pairs ":SIZE:COUNT" with
    sizes in KiB. If it has no such pair, the size is the default for `major`, the first number of
    the device's compute capability.
    """
    pairs = re.findall(r":(\d+):(\d+)", environment)
    if pairs:
        return sum(int(size) * int(count) for size, count in pairs) * KIB
    return 4096 * 8 * KIB if major >= HOPPER else (4096 * 2 + 16 * 8) * KIB


def lt_workspace_bytes(major: int, environment: str) -> int:
    """Returns the size of cuBLASLt's workspace in bytes.

    `environment` is the value of the variable CUBLASLT_WORKSPACE_SIZE, a size in KiB. If it is no
    number, the size is the default for `major`, the first number of the device's compute
    capability.
    """
    if environment.isdecimal():
        return int(environment) * KIB
    return workspace_bytes(major, "")


def blas_names(runtime: Runtime) -> dict[str, object]:
    """Returns the functions and modules of `torch._C` for cuBLAS, cuSOLVER and cuDNN on a virtual
    GPU, as `{name: value}`.
    """

    def default_cublas() -> int:
        return workspace_bytes(runtime.devices[0].major, os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))

    def default_lt() -> int:
        return lt_workspace_bytes(runtime.devices[0].major, os.environ.get("CUBLASLT_WORKSPACE_SIZE", ""))

    sizes: dict[str, int] = {}
    switches = {"benchmark_limit": BENCHMARK_LIMIT, "conv_benchmark_empty_cache": True}

    def handle(of: int) -> int:
        runtime.initialise()
        return HANDLES + (runtime.shim.current_device() << 16) + of

    def clear_workspaces() -> None:
        with runtime.simulator.simulated() as simulation:
            simulation.clear_workspaces()

    return {
        "_cudnn": _cudnn_module(),
        "_cuda_clearCublasWorkspaces": clear_workspaces,
        "_cuda_getCublasLtWorkspaceSize": lambda: sizes.get("cublaslt") or default_lt(),
        "_cuda_getCublasWorkspaceSize": lambda: sizes.get("cublas") or default_cublas(),
        "_cuda_getCurrentBlasHandle": lambda: handle(1),
        "_cuda_getCurrentSolverHandle": lambda: handle(2),
        "_cuda_get_conv_benchmark_empty_cache": lambda: switches["conv_benchmark_empty_cache"],
        "_cuda_get_cudnn_benchmark_limit": lambda: switches["benchmark_limit"],
        "_cuda_resetCublasLtWorkspaceSize": lambda: sizes.pop("cublaslt", None),
        "_cuda_resetCublasWorkspaceSize": lambda: sizes.pop("cublas", None),
        "_cuda_setCublasLtWorkspaceSize": lambda size: sizes.update(cublaslt=int(size)),
        "_cuda_setCublasWorkspaceSize": lambda size: sizes.update(cublas=int(size)),
        "_cuda_set_cudnn_benchmark_limit": lambda limit: switches.update(benchmark_limit=int(limit)),
        "_cudnn_set_conv_benchmark_empty_cache": lambda on: switches.update(conv_benchmark_empty_cache=bool(on)),
    }


def _cudnn_module() -> ModuleType:
    module = ModuleType("torch._C._cudnn", "libcudnn.so bindings")
    major, minor, patch = CUDNN_VERSION
    vars(module).update(
        RNNMode=RnnMode,
        is_cuda=True,
        getVersionInt=lambda: major * 10_000 + minor * 100 + patch,
        getRuntimeVersion=lambda: CUDNN_VERSION,
        getCompileVersion=lambda: CUDNN_VERSION,
    )
    return module


TUNABLE_SETTINGS: dict[str, object] = {
    "filename": "",
    "max_tuning_duration": 30,
    "max_tuning_iterations": 100,
    "rotating_buffer_size": 0,
}
"""The settings of TunableOp, with torch's defaults."""


def tunable_names() -> dict[str, object]:
    """Returns the functions of `torch._C` for TunableOp on a virtual GPU, as `{name: function}`.
    Its settings can be set and read, but it is never enabled.
    """
    settings = dict(TUNABLE_SETTINGS)
    names: dict[str, object] = {
        "_cuda_record_untuned_is_enabled": lambda: False,
        "_cuda_tunableop_get_results": lambda: (),
        "_cuda_tunableop_get_validators": lambda: (),
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_tunableop_set_numerical_check_tolerances": lambda *_values: None,
        "_cuda_tunableop_tuning_is_enabled": lambda: False,
    }

    def setter(name: str) -> Callable[..., None]:
        return lambda value, *_rest: settings.__setitem__(name, value)

    def getter(name: str) -> Callable[[], object]:
        return lambda: settings[name]

    for name in settings:
        names[f"_cuda_tunableop_set_{name}"] = setter(name)
        names[f"_cuda_tunableop_get_{name}"] = getter(name)
    return names
