"""Which calls of the CUDA driver wait for work that is queued on the device?

    python -m benchmarks.driver_waits [--out FILE]     (needs a CUDA device)

Each call is made in turns with an idle device and with 18 ms of queued work. One that waits takes those 18 ms longer,
and the device is idle when it returns. `unstall.replay.calls` takes from here which calls wait.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.on_device import tell

ROUNDS = 7
QUEUED_MS = 20.0
MIB = 1 << 20


def main() -> None:
    tell(__doc__, lambda: {"queued_ms": QUEUED_MS - 2, "calls": _calls()})


def _calls() -> dict[str, dict[str, Any]]:
    runtime = _Runtime()
    made = {}
    for size, name in ((512, "512 B"), (2 * MIB, "2 MiB"), (1024 * MIB, "1 GiB"), (8192 * MIB, "8 GiB")):
        made[f"cudaMalloc {name}"] = runtime.taking("cudaMalloc", "cudaFree", size)
        made[f"cudaFree {name}"] = runtime.giving_back("cudaMalloc", "cudaFree", size)
    for size, name in ((4096, "4 KiB"), (4 * MIB, "4 MiB")):
        made[f"cudaHostAlloc {name}"] = runtime.taking("cudaHostAlloc", "cudaFreeHost", size, 0)
        made[f"cudaFreeHost {name}"] = runtime.giving_back("cudaHostAlloc", "cudaFreeHost", size, 0)
    made["cudaHostRegister 4 MiB"], made["cudaHostUnregister 4 MiB"] = runtime.registering(4 * MIB)
    made["cudaMallocManaged 64 MiB"] = runtime.taking("cudaMallocManaged", "cudaFree", 64 * MIB, 1)
    made["cudaMallocAsync 64 MiB"] = runtime.taking("cudaMallocAsync", "cudaFree", 64 * MIB, None)
    return {name: _measured(*call) for name, call in made.items()}


_Call = tuple[Callable[[], Any], Callable[[Any], None], Callable[[Any], None]]  # prepare, the call itself, clean up


class _Runtime:
    """The library of the CUDA runtime that torch has loaded."""

    def __init__(self) -> None:
        import torch

        torch.zeros(1, device="cuda")
        self._library = ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '').partition('.')[0]}")

    def taking(self, take: str, give_back: str, size: int, *more: object) -> _Call:
        return (
            ctypes.c_void_p,
            lambda pointer: self._call(take, ctypes.byref(pointer), ctypes.c_size_t(size), *more),
            lambda pointer: self._call(give_back, pointer),
        )

    def giving_back(self, take: str, give_back: str, size: int, *more: object) -> _Call:
        def taken() -> ctypes.c_void_p:
            pointer = ctypes.c_void_p()
            self._call(take, ctypes.byref(pointer), ctypes.c_size_t(size), *more)
            return pointer

        return taken, lambda pointer: self._call(give_back, pointer), lambda pointer: None

    def registering(self, size: int) -> tuple[_Call, _Call]:
        def touched() -> Any:
            pages = ctypes.create_string_buffer(size)
            ctypes.memset(pages, 1, size)
            return pages

        def registered() -> Any:
            pages = touched()
            register(pages)
            return pages

        def register(pages: Any) -> None:
            self._call("cudaHostRegister", pages, ctypes.c_size_t(size), 0)

        def unregister(pages: Any) -> None:
            self._call("cudaHostUnregister", pages)

        return (touched, register, unregister), (registered, unregister, lambda pages: None)

    def _call(self, name: str, *arguments: object) -> None:
        if error := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} failed with error {error}")


def _measured(prepare: Callable[[], Any], call: Callable[[Any], None], clean: Callable[[Any], None]) -> dict[str, Any]:
    """Returns the median ms of a call while the device is idle, and while it is busy; and how often
    the device was still busy when the call had returned.

    Args:
        prepare: A function that is called before each call. What it returns is passed to `call` and
            `clean`.
        call: The call.
        clean: A function that is called after each call.
    """
    import torch

    cycles = _cycles_of_ms(QUEUED_MS)
    times: dict[bool, list[float]] = {False: [], True: []}
    still_busy = 0
    for busy in (False, True) * ROUNDS:
        pointer = prepare()
        torch.cuda.synchronize()
        if busy:
            torch.cuda._sleep(cycles)
            time.sleep(0.002)
        begun = time.perf_counter()
        call(pointer)
        times[busy].append(1e3 * (time.perf_counter() - begun))
        still_busy += busy and not torch.cuda.current_stream().query()
        torch.cuda.synchronize()
        clean(pointer)
    return {
        "idle_ms": round(statistics.median(times[False]), 4),
        "busy_ms": round(statistics.median(times[True]), 4),
        "device_still_busy": f"{still_busy} of {ROUNDS}",
    }


def _cycles_of_ms(length: float) -> int:
    import torch

    cycles = 50_000_000
    begun, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    torch.cuda._sleep(cycles)
    done.record()
    done.synchronize()
    return int(cycles * length / begun.elapsed_time(done))


if __name__ == "__main__":
    main()
