"""First and second calls of twelve operators, each in a new process: on a real GPU, and on a virtual one.

    python -m benchmarks.virtual_startup --out real.json                # on a GPU
    python -m benchmarks.virtual_startup --gpu h100 --against real.json # anywhere

The shapes are none of those that `unstall calibrate` measures. Times are those of a call and the wait for it. On a GPU,
a process of each operator runs before those that count: libraries are then in memory, and kernels that cuDNN compiles
are in CUDA's cache on disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.on_device import agreement, comparing, machines, measured_on

_LIMIT = 0.4


def main(argv: list[str] | None = None) -> int:
    parser = comparing(__doc__)
    parser.add_argument("--gpu", help="a virtual GPU; without it, the real one")
    parser.add_argument("--rounds", type=int, default=1, help="processes of each operator")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.call:
        print(json.dumps(_times(args.call)))
        return 0
    found: dict[str, Any] = {}
    for name in _calls():
        if not args.gpu:
            _in_a_process(name, None)
        rounds = [_in_a_process(name, args.gpu) for _ in range(args.rounds)]
        found[name] = [statistics.median(times) for times in zip(*rounds, strict=True)]
    real = [each["us"] for each in machines(args.against)]
    print(f"{'us':16} {'first':>10} {'second':>8}" + "   over each real one" * bool(real))
    for name, times in found.items():
        ratios = "".join(f"   {times[0] / of[name][0]:5.2f} {times[1] / of[name][1]:5.2f}" for of in real if name in of)
        print(f"{name:16} {times[0]:10.0f} {times[1]:8.0f}{ratios}")
    if real:
        print(agreement(_each(found), [*map(_each, real)], _LIMIT))
    if args.out:
        device = {"device": args.gpu} if args.gpu else measured_on()
        args.out.write_text(json.dumps(device | {"us": found}, indent=1) + "\n")
    return 0


def _each(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns all times by operator and number of the call."""
    return {f"{name} {nth}": us for name, both in times.items() for nth, us in enumerate(both)}


def _in_a_process(name: str, gpu: str | None) -> list[float]:
    virtual = ["-m", "unstall.virtual", "--gpu", gpu] if gpu else []
    command = [sys.executable, *virtual, "-m", "benchmarks.virtual_startup", "--call", name]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    times: list[float] = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("[")))
    return times


def _times(name: str) -> list[float]:
    """Returns the µs of the first and of the second call of an operator, each with the wait for it.
    CUDA is initialised before, and the arguments are on the device.
    """
    import torch

    make, call = _calls()[name]
    given = [each.cuda() for each in make()]
    torch.cuda.synchronize()
    times = []
    for _ in range(2):
        begin = time.perf_counter_ns()
        call(*given)
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return times


def _calls() -> dict[str, tuple[Callable[[], list[Any]], Callable[..., Any]]]:
    """Returns, by operator, a function that makes its arguments on the CPU, and a function that
    calls it.
    """
    import torch
    from torch.nn import functional

    def random(*sizes: tuple[int, ...], dtype: Any = torch.float32) -> Callable[[], list[Any]]:
        return lambda: [torch.randn(size).to(dtype) for size in sizes]

    words = torch.arange(3000) % 900
    return {
        "mul, sum": (random((10000, 1024)), lambda x: x.mul(x).sum(-1)),
        "bmm": (random((2500, 1, 1024), (2500, 1024, 1)), torch.bmm),
        "linear": (random((10000, 512), (1024, 512)), functional.linear),
        "conv2d": (random((6, 48, 60, 60), (80, 48, 3, 3)), functional.conv2d),
        "layer_norm": (random((1500, 640), (640,), (640,)), lambda x, w, b: functional.layer_norm(x, (640,), w, b)),
        "softmax": (random((900, 700), dtype=torch.float16), lambda x: x.softmax(-1)),
        "embedding": (lambda: [words, torch.randn(900, 320)], functional.embedding),
        "topk": (random((300, 5000)), lambda x: x.topk(7)),
        "cross_entropy": (lambda: [torch.randn(3000, 900), words], functional.cross_entropy),
        "attention": (
            random(*[(3, 12, 300, 64)] * 3, dtype=torch.bfloat16),
            functional.scaled_dot_product_attention,
        ),
        "randn": (random((3,)), lambda x: torch.randn(700, 900, device=x.device)),
        "cat": (random((500, 300), (700, 300)), lambda x, y: torch.cat([x, y])),
    }


if __name__ == "__main__":
    sys.exit(main())
