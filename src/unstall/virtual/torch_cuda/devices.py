"""The devices of `torch.cuda`: how many there are, which is current, their properties, and waits for them."""

from __future__ import annotations

import importlib

from unstall.virtual.log import LogCode
from unstall.virtual.torch_cuda.properties import ARCHITECTURES, COMPILED_VERSION, DeviceProperties, DeviceUuid
from unstall.virtual.torch_cuda.runtime import Runtime


def device_names(runtime: Runtime) -> dict[str, object]:
    """Returns the functions and classes of `torch._C` for virtual devices, as `{name: value}`."""
    shim, forks = runtime.shim, runtime.forks

    def device_count() -> int:
        forks.arm()
        return 0 if runtime.hidden else shim.device_count()

    def initialise() -> None:
        if runtime.hidden:
            raise RuntimeError("No CUDA GPUs are available")
        forks.arm()
        runtime.cuda_begins()
        cuda = importlib.import_module("torch.cuda")
        for name, value in {
            "has_magma": True,
            "has_half": True,
            "default_generators": tuple(map(shim.default_generator, range(shim.device_count()))),
            "_get_device_properties": get_properties,
        }.items():
            setattr(cuda, name, value)

    def get_properties(device: int) -> DeviceProperties:
        return runtime.devices[runtime.checked_device(device)]

    def set_device(device: int) -> None:
        runtime.initialise()
        shim.set_device(runtime.checked_device(device))

    def current_device() -> int:
        runtime.initialise()
        return shim.current_device()

    def exchange_device(device: int) -> int:
        if device < 0:
            return -1
        runtime.initialise()
        before = shim.current_device()
        if before != device:
            shim.set_device(runtime.checked_device(device))
        return before

    def can_access_peer(device: int, peer: int) -> bool:
        return runtime.checked_device(device) != runtime.checked_device(peer)

    def synchronize() -> None:
        runtime.refuse_in_capture("cudaDeviceSynchronize")
        shim.sync_device(shim.current_device())

    def sleep(cycles: int) -> None:
        if not isinstance(cycles, int):
            raise TypeError("torch.cuda._sleep(): expected 'int'")
        runtime.log(LogCode.SLEEP, a=cycles)

    return {
        "_CUuuid": DeviceUuid,
        "_CudaDeviceProperties": DeviceProperties,
        "_cuda_canDeviceAccessPeer": can_access_peer,
        "_cuda_exchangeDevice": exchange_device,
        "_cuda_getArchFlags": lambda: ARCHITECTURES,
        "_cuda_getCompiledVersion": lambda: COMPILED_VERSION,
        "_cuda_getDevice": current_device,
        "_cuda_getDeviceCount": device_count,
        "_cuda_hasPrimaryContext": lambda device: 0 <= device < shim.device_count(),
        "_cuda_init": initialise,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_isInBadFork": lambda: forks.is_child,
        "_cuda_lock_mutex": lambda: None,
        "_cuda_maybeExchangeDevice": exchange_device,
        "_cuda_setDevice": set_device,
        "_cuda_sleep": sleep,
        "_cuda_synchronize": synchronize,
        "_cuda_unlock_mutex": lambda: None,
        "_rocm_is_backward_pass": lambda: False,
    }
