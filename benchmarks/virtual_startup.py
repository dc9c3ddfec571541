"""First and second calls of twelve operators, each in a new process: on a real GPU, and on a virtual one.

    python -m benchmarks.virtual_startup --out real.json                # on a GPU
    python -m benchmarks.virtual_startup --gpu h100 --against real.json # anywhere

With `--more`, the operators are 24 others. The shapes are none of those that `unstall calibrate` measures. Times are
those of a call and the wait for it. On a GPU, a process of each operator runs before those that count: libraries are
then in memory, and kernels that cuDNN compiles are in CUDA's cache on disk.
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
    parser.add_argument("--more", action="store_true", help="24 other operators")
    parser.add_argument("--rounds", type=int, default=1, help="processes of each operator")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.call:
        print(json.dumps(_times(args.call)))
        return 0
    found: dict[str, Any] = {}
    for name in _more_calls() if args.more else _calls():
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

    make, call = (_calls() | _more_calls())[name]
    given = [each.cuda() for each in make()]
    torch.cuda.synchronize()
    times = []
    for _ in range(2):
        begin = time.perf_counter_ns()
        call(*given)
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return times


_Calls = dict[str, tuple[Callable[[], list[Any]], Callable[..., Any]]]


def _random(*sizes: tuple[int, ...], dtype: str = "float32") -> Callable[[], list[Any]]:
    import torch

    return lambda: [torch.randn(size).to(getattr(torch, dtype)) for size in sizes]


def _calls() -> _Calls:
    """Returns, by operator, a function that makes its arguments on the CPU, and a function that
    calls it.
    """
    import torch
    from torch.nn import functional

    words = torch.arange(3000) % 900
    return {
        "mul, sum": (_random((10000, 1024)), lambda x: x.mul(x).sum(-1)),
        "bmm": (_random((2500, 1, 1024), (2500, 1024, 1)), torch.bmm),
        "linear": (_random((10000, 512), (1024, 512)), functional.linear),
        "conv2d": (_random((6, 48, 60, 60), (80, 48, 3, 3)), functional.conv2d),
        "layer_norm": (_random((1500, 640), (640,), (640,)), lambda x, w, b: functional.layer_norm(x, (640,), w, b)),
        "softmax": (_random((900, 700), dtype="float16"), lambda x: x.softmax(-1)),
        "embedding": (lambda: [words, torch.randn(900, 320)], functional.embedding),
        "topk": (_random((300, 5000)), lambda x: x.topk(7)),
        "cross_entropy": (lambda: [torch.randn(3000, 900), words], functional.cross_entropy),
        "attention": (
            _random(*[(3, 12, 300, 64)] * 3, dtype="bfloat16"),
            functional.scaled_dot_product_attention,
        ),
        "randn": (_random((3,)), lambda x: torch.randn(700, 900, device=x.device)),
        "cat": (_random((500, 300), (700, 300)), lambda x, y: torch.cat([x, y])),
    }


def _more_calls() -> _Calls:
    """Returns, as `_calls` does, operators of other kinds."""
    import torch
    from torch.nn import functional

    rows = torch.arange(5000) * 7 % 1200
    return {
        "add bfloat16": (_random((700, 1300), (1300,), dtype="bfloat16"), torch.add),
        "relu": (_random((40, 64, 31, 31)), torch.relu),
        "gelu float16": (_random((800, 1500), dtype="float16"), functional.gelu),
        "sigmoid": (_random((3000, 110)), torch.sigmoid),
        "where": (_random((900, 800)), lambda x: torch.where(x > 0, x, -x)),
        "var": (_random((1100, 900)), lambda x: x.var(0)),
        "argmax": (_random((2200, 330)), lambda x: x.argmax(1)),
        "cumsum": (_random((600, 1100)), lambda x: x.cumsum(1)),
        "sort": (_random((90000,)), torch.sort),
        "masked_select": (_random((500, 600)), lambda x: x[x > 0.5]),
        "index_select": (lambda: [torch.randn(1200, 96), rows], lambda x, i: x.index_select(0, i)),
        "index_add": (
            lambda: [torch.zeros(1200, 96), rows, torch.randn(5000, 96)],
            lambda x, i, y: x.index_add(0, i, y),
        ),
        "gather": (lambda: [torch.randn(5000, 40), rows[:, None] % 40], lambda x, i: x.gather(1, i)),
        "one_hot": (lambda: [rows], lambda i: functional.one_hot(i, 1200)),
        "matmul float16": (_random((520, 780), (780, 650), dtype="float16"), torch.matmul),
        "conv1d": (_random((12, 40, 900), (72, 40, 5)), functional.conv1d),
        "conv_transpose2d": (
            _random((8, 96, 14, 14), (96, 48, 4, 4)),
            lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1),
        ),
        "conv2d float16": (_random((10, 64, 40, 40), (96, 64, 3, 3), dtype="float16"), functional.conv2d),
        "batch_norm": (
            _random((20, 72, 28, 28), (72,), (72,)),
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        ),
        "group_norm": (_random((12, 96, 24, 24), (96,), (96,)), lambda x, w, b: functional.group_norm(x, 8, w, b)),
        "max_pool2d": (_random((16, 48, 54, 54)), lambda x: functional.max_pool2d(x, 2)),
        "interpolate": (_random((6, 32, 30, 30)), lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear")),
        "multinomial": (lambda: [torch.rand(60, 7000)], lambda x: torch.multinomial(x, 1)),
        "dropout": (_random((1700, 500)), lambda x: functional.dropout(x, 0.3)),
    }


if __name__ == "__main__":
    sys.exit(main())
