"""What each part of CUPTI costs a program that the host bounds: a forward pass of GPT-2 on a GPU.

    python -m benchmarks.cupti_parts [--rounds 3]

Each part is turned on between two stretches without, and CUPTI is detached after it. Figures are the lower quartile of
the step time by that of its neighbours, one a round. Skips itself where there is no GPU, or no transformers.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.on_device import why_skipped

_KERNEL, _MEMCPY, _MEMSET, _EVENT, _SYNCHRONIZATION, _OVERHEAD = 10, 1, 2, 36, 38, 17
_DRIVER_API, _CHUNK_BYTES, _STEPS = 1, 8 << 20, 100
_PINNED = 8  # CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED
_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, *[ctypes.c_size_t] * 2])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    if skipped := why_skipped("transformers"):
        print(skipped)
        return 0
    import torch

    step = _step()
    for _ in range(_STEPS):
        step()
    cupti = _Cupti()
    ratios: dict[str, list[tuple[float, float]]] = {}
    for _ in range(args.rounds):
        for name, part in _parts().items():
            before = _lower_quartile(step)
            cupti.turn_on(part)
            during = _lower_quartile(step)
            torch.cuda.synchronize()
            cupti.turn_off(part)
            off = _lower_quartile(step)
            cupti.detach()
            behind = _lower_quartile(step)
            plain = (before + behind) / 2
            ratios.setdefault(name, []).append((during / plain, off / plain))
    for name, pairs in ratios.items():
        shown = ", ".join(f"{during:.3f} (turned off: {off:.3f})" for during, off in pairs)
        print(f"{name:40s} {shown}")
    return 0


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of CUPTI that can be turned on.

    Attributes:
        kinds: The kinds of activity records.
        calls: The calls of the driver with a callback.
        records_of_calls: The calls of the driver with a record.
        pinned: Whether the times are kept in pinned memory.
    """

    kinds: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()
    records_of_calls: tuple[int, ...] = ()
    pinned: bool = False


def _parts() -> dict[str, _Part]:
    """Returns the parts of CUPTI that are measured, by the names that the tables have for them."""
    from unstall.cupti.driver_calls import DRIVER

    ops, calls = (_KERNEL, _MEMCPY, _MEMSET), tuple(DRIVER)
    return {
        "kernels": _Part((_KERNEL,)),
        "kernels, their times in pinned memory": _Part((_KERNEL,), pinned=True),
        "kernels, copies, memsets": _Part(ops),
        "calls": _Part((), calls),
        "records of calls": _Part((), (), calls),
        "kernels, copies, memsets, calls": _Part(ops, calls),
        "the same, times in pinned memory": _Part(ops, calls, pinned=True),
        "the same, and records of calls": _Part(ops, calls, calls),
        "the same, and events": _Part((*ops, _EVENT), calls),
        "kernels and waits": _Part((_KERNEL, _SYNCHRONIZATION)),
        "kernels and overhead": _Part((_KERNEL, _OVERHEAD)),
    }


def _step() -> Callable[[], object]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda().eval()
    tokens = torch.randint(0, 50257, (1, 8), device="cuda")

    def step() -> object:
        with torch.no_grad():
            return model(tokens, use_cache=False).logits[:, -1:].argmax(-1).item()

    return step


def _lower_quartile(step: Callable[[], object]) -> float:
    times = []
    for number in range(_STEPS):
        begun = time.perf_counter()
        step()
        if number > 2:
            times.append(time.perf_counter() - begun)
    return float(np.percentile(times, 25))


class _Cupti:
    """libcupti. Its callbacks do nothing except take its buffers of records."""

    def __init__(self) -> None:
        from unstall.cupti.recorder import find_library

        self._library: Any = ctypes.CDLL(str(find_library()))
        self._subscriber = ctypes.c_void_p()
        memory = ctypes.CDLL(None)
        memory.calloc.restype = ctypes.c_void_p

        def requested(buffer: Any, size: Any, most: Any) -> None:
            buffer[0], size[0], most[0] = memory.calloc(1, _CHUNK_BYTES), _CHUNK_BYTES, 0

        def completed(_context: Any, _stream: Any, buffer: Any, _size: Any, _valid: Any) -> None:
            memory.free(ctypes.c_void_p(buffer))

        nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
        # `getpid` stands for a callback in C that comes back at once.
        self._callback = ctypes.cast(memory.getpid, nothing)
        self._buffers = _REQUESTED(requested), _COMPLETED(completed)

    def turn_on(self, part: _Part) -> None:
        self._library.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None)
        pinned = ctypes.c_uint8(part.pinned)
        self._library.cuptiActivitySetAttribute(_PINNED, ctypes.byref(ctypes.c_size_t(1)), ctypes.byref(pinned))
        self._library.cuptiActivityRegisterCallbacks(*self._buffers)
        for kind in part.kinds:
            self._library.cuptiActivityEnable(kind)
        for call in part.calls:
            self._library.cuptiEnableCallback(1, self._subscriber, _DRIVER_API, call)
        for call in part.records_of_calls:
            self._library.cuptiActivityEnableDriverApi(call, 1)

    def turn_off(self, part: _Part) -> None:
        for call in part.records_of_calls:
            self._library.cuptiActivityEnableDriverApi(call, 0)
        for call in part.calls:
            self._library.cuptiEnableCallback(0, self._subscriber, _DRIVER_API, call)
        for kind in part.kinds:
            self._library.cuptiActivityDisable(kind)
        self._library.cuptiActivityFlushAll(1)

    def detach(self) -> None:
        self._library.cuptiUnsubscribe(self._subscriber)
        self._library.cuptiFinalize()


if __name__ == "__main__":
    sys.exit(main())
