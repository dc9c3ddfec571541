"""What the authors of a course saw on their Tesla T4, and what a virtual T4 says.

    python -m benchmarks.virtual_course [--gpu t4]

The figures are in results/course_t4.json. Those under "use" may be used to make the model of the T4, those under
"judge" only to judge it. The authors' host, driver and version of torch are not known.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.on_device import on_virtual

_FIGURES = Path(__file__).parent / "results" / "course_t4.json"
_LIMIT = 1.25
_LOOSE = 2.0
_LOOSELY = ("first", "no synchronize")  # what depends on the host and on the driver


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpu", default="t4", help="the virtual GPU (default: t4)")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps(_ROWS[args.row]()))
        return 0
    figures = json.loads(_FIGURES.read_text())
    errors = []
    for part in ("use", "judge"):
        for figure in figures[part]:
            says = _in_a_process(figure["what"], args.gpu)
            ratio = says / figure["s"]
            limit = _LOOSE if any(word in figure["what"] for word in _LOOSELY) else _LIMIT
            if part == "judge" and limit == _LIMIT:
                errors.append(abs(ratio - 1))
            missed = "" if 1 / limit <= ratio <= limit else "  missed"
            print(
                f"{part:6} {figure['s'] * 1e3:9.4f} ms {says * 1e3:9.4f} ms  {ratio:5.2f}{missed:8}  {figure['what']}"
            )
    print(f"median error of those under judge: {statistics.median(errors):.0%}")
    return 0


def _in_a_process(row: str, gpu: str) -> float:
    command = on_virtual(gpu, "-m", "benchmarks.virtual_course", "--row", row)
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{row}: {ran.stderr}")
    return float(ran.stdout.splitlines()[-1])


def _mul_sum(x: Any) -> Any:
    return x.mul(x).sum(-1)


def _bmm(x: Any) -> Any:
    import torch

    return torch.bmm(x.reshape(-1, 1, 1024), x.reshape(-1, 1024, 1))


def _x() -> Any:
    import torch

    return torch.randn(10000, 1024, device="cuda")


def _timer(call: Callable[[Any], Any]) -> float:
    import torch
    from torch.utils import benchmark

    x = _x()
    for _ in range(3):
        call(x)
    torch.cuda.synchronize()
    return float(benchmark.Timer("call(x)", globals={"call": call, "x": x}).timeit(100).mean)


def _loop(call: Callable[[], Any], count: int, *, each: bool, last: bool, warm: bool = True) -> float:
    """Returns the mean time of a call in s, with a wait after each, or after the last, or none."""
    import torch

    if warm:
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
        if each:
            torch.cuda.synchronize()
    if last:
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def _of_x(call: Callable[[Any], Any], *, each: bool = False, last: bool = False, warm: bool = True) -> float:
    x = _x()
    return _loop(lambda: call(x), 100, each=each, last=last, warm=warm)


def _linear(*, each: bool = False, last: bool = False) -> float:
    import torch

    x, layer = torch.randn(10000, 512, device="cuda"), torch.nn.Linear(512, 1024, bias=False).cuda()
    return _loop(lambda: layer(x), 100, each=each, last=last)


def _copies(*, streams: bool) -> float:
    import torch

    held = torch.randn(4096, 4096).pin_memory()
    x = torch.randn(10240, 10240, device="cuda")
    second = torch.cuda.Stream() if streams else torch.cuda.current_stream()
    torch.mm(x, x)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.cuda.stream(second):
        for _ in range(100):
            held.to("cuda", non_blocking=True)
    torch.mm(x, x)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def _rounds(*, graph: bool) -> float:
    import torch

    x = torch.randn(5, device="cuda")

    def rounds() -> Any:
        y = x
        for _ in range(500):
            y = torch.relu(torch.sigmoid(y * 2) + 5)
        return y

    run = rounds
    rounds()
    torch.cuda.synchronize()
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            rounds()
        run = captured.replay
        run()
        torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def _two_products(*, streams: bool) -> float:
    import torch

    a, b = (torch.randn(1000, 1000, device="cuda") for _ in range(2))
    one, other = (torch.cuda.Stream(), torch.cuda.Stream()) if streams else (torch.cuda.current_stream(),) * 2
    for stream in (one, other):
        with torch.cuda.stream(stream):
            a @ b
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.cuda.stream(one):
        a @ b
    with torch.cuda.stream(other):
        b @ a
    torch.cuda.synchronize()
    return time.perf_counter() - begin


_ROWS: dict[str, Callable[[], float]] = {
    "x.mul(x).sum(-1), x = randn(10000, 1024) float32 cuda: torch.utils.benchmark.Timer": lambda: _timer(_mul_sum),
    "the same by timeit with synchronize after each of 100": lambda: _of_x(_mul_sum, each=True),
    "the same without synchronize, 100 calls after warm-up": lambda: _of_x(_mul_sum),
    "Linear(512, 1024, bias=False) on randn(10000, 512) float32: synchronize after each": lambda: _linear(each=True),
    "100 copies of pinned 4096x4096 float32 to the device and one product of 10240x10240, one stream": lambda: _copies(
        streams=False
    ),
    "500 rounds of x*2, sigmoid, +5, relu on 5 floats, eager, then synchronize": lambda: _rounds(graph=False),
    "torch.bmm(x.reshape(-1, 1, 1024), x.reshape(-1, 1024, 1)): torch.utils.benchmark.Timer": lambda: _timer(_bmm),
    "first 100 calls of mul.sum in a process, mean": lambda: _of_x(_mul_sum, last=True, warm=False),
    "first 100 calls of bmm in a process, mean": lambda: _of_x(_bmm, last=True, warm=False),
    "bmm without synchronize, after warm-up": lambda: _of_x(_bmm),
    "Linear: 100 calls, one synchronize, a call": lambda: _linear(last=True),
    "Linear: no synchronize, a call": _linear,
    "copies and product on two streams": lambda: _copies(streams=True),
    "the 500 rounds as a CUDA graph": lambda: _rounds(graph=True),
    "two products of 1000x1000 float32, one stream": lambda: _two_products(streams=False),
    "two products of 1000x1000 float32, two streams": lambda: _two_products(streams=True),
}


if __name__ == "__main__":
    sys.exit(main())
