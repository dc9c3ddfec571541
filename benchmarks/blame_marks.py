"""What one mark costs the device and the host: on a stream, in a graph, and in a graph beside the chain of work.

    python -m benchmarks.blame_marks

A mark is a cuStreamWriteValue32 into pinned host memory. It goes after every first, fourth or sixteenth of 400 short
kernels. "Beside": the next kernel does not wait for the mark, and each mark waits for the one before it.
"""

from __future__ import annotations

import ctypes as c
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.on_device import why_skipped

_KERNELS = 400
_EVERY = (1, 4, 16)
_SET = 1


def main() -> int:
    if skipped := why_skipped():
        print(skipped)
        return 0
    import torch

    a = torch.ones(1024, device="cuda")
    slot = torch.zeros(1024, dtype=torch.int32).pin_memory()
    stream = torch.cuda.Stream()
    driver = c.CDLL("libcuda.so.1")
    driver.cuStreamWriteValue32_v2.argtypes = [c.c_void_p, c.c_uint64, c.c_uint32, c.c_uint]

    def mark(value: int) -> int:
        return int(driver.cuStreamWriteValue32_v2(stream.cuda_stream, slot.data_ptr(), value, 0))

    def put(every: int, marking: Callable[[int], int]) -> set[int]:
        codes = set()
        with torch.cuda.stream(stream):
            for number in range(1, _KERNELS + 1):
                a.add_(1.0)
                if every and number % every == 0:
                    codes.add(marking(number))
        return codes

    for every in (0, *_EVERY):
        print(f"stream, every {every}: {_on_stream(stream, partial(put, every, mark))}", flush=True)
    for every in (0, *_EVERY):
        for name, marking in (("in line", mark), ("beside", _Beside(driver, stream.cuda_stream, mark))):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                codes = put(every, marking)
            print(f"graph, every {every}, {name}: {_replayed(graph)} {codes} value {int(slot[0])}", flush=True)
    return 0


class _Beside:
    """Puts marks into a captured CUDA graph in such a way that no work waits for them."""

    def __init__(self, driver: Any, stream: int, mark: Callable[[int], int]) -> None:
        self._driver, self._stream, self._mark = driver, c.c_void_p(stream), mark
        self._last: list[int] = []

    def __call__(self, value: int) -> int:
        work = self._nodes()
        code = self._set([*work, *self._last]) or self._mark(value)
        self._last = self._nodes()
        return code or self._set(work)

    def _nodes(self) -> list[int]:
        status, number, graph = c.c_int(), c.c_uint64(), c.c_void_p()
        nodes, count = c.POINTER(c.c_void_p)(), c.c_size_t()
        self._driver.cuStreamGetCaptureInfo_v2(self._stream, *map(c.byref, (status, number, graph, nodes, count)))
        return [int(nodes[at] or 0) for at in range(count.value)]

    def _set(self, nodes: list[int]) -> int:
        values = (c.c_void_p * len(nodes))(*nodes)
        update = self._driver.cuStreamUpdateCaptureDependencies
        return int(update(self._stream, values, c.c_size_t(len(nodes)), c.c_uint(_SET)))


def _on_stream(stream: Any, put: Callable[[], object]) -> str:
    import torch

    device, host = [], []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            torch.cuda._sleep(40_000_000)
            begin.record()
            began = time.perf_counter()
            put()
            host.append((time.perf_counter() - began) * 1e6)
            end.record()
        torch.cuda.synchronize()
        device.append(begin.elapsed_time(end) * 1e3)
    return f"device {_each(device)}, host {_each(host)}"


def _replayed(graph: Any) -> str:
    import torch

    times = []
    for _ in range(15):
        torch.cuda.synchronize()
        began = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e6)
    return _each(times)


def _each(times: list[float]) -> str:
    return f"{statistics.median(times) / _KERNELS:.3f} us/kernel"


if __name__ == "__main__":
    sys.exit(main())
