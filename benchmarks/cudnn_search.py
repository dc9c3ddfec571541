"""What `torch.backends.cudnn.benchmark = True` adds to the first call of a convolution, in time and in memory: on a
real GPU, and on a virtual one.

    python -m benchmarks.cudnn_search --out real.json                                     # on a GPU
    python -m unstall.virtual --gpu h200 --numerics skip -m benchmarks.cudnn_search --against real.json    # anywhere

The shapes are drawn at random, the same for each machine, and each is forwards and backwards.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch

from benchmarks.on_device import comparing, machines, measured_on, why_skipped
from unstall.virtual.costs.suite.conv_shapes import Shape, sampled

_SEED, _SHAPES, _SECONDS = 7, 80, 150.0
_LEAST = 5 << 20
_WITHIN = 1.35, 2.0


def main(argv: list[str] | None = None) -> int:
    parser = comparing(__doc__)
    args = parser.parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    torch.backends.cudnn.benchmark = True
    known = machines(args.against)
    count = len(known[0]["convolutions"]) if known else _SHAPES
    rows = []
    begin = time.monotonic()
    for shape in sampled(count, seed=_SEED):
        if not known and time.monotonic() - begin > _SECONDS:
            break
        rows.append(_measured(shape))
    for real in known:
        _compare(rows, real["convolutions"])
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"convolutions": rows}) + "\n")
    return 0


def _measured(shape: Shape) -> dict[str, Any]:
    """Returns, of the first and the second call of a convolution and of its gradients, the time in s, and how many
    bytes the call allocates at most.
    """
    layer = torch.nn.Conv2d(
        *(shape.channels, shape.filters, shape.kernel, shape.stride),
        *(shape.kernel // 2, shape.dilation, shape.groups, shape.bias),
        device="cuda",
        dtype=shape.dtype,
    )
    layout = torch.channels_last if shape.layouts.startswith("l") else torch.contiguous_format
    images = torch.randn(shape.batch, shape.channels, *shape.sides, device="cuda", dtype=shape.dtype)
    images = images.contiguous(memory_format=layout).requires_grad_()
    row: dict[str, Any] = {"shape": str(shape), "forward": [], "backward": []}
    for _ in range(2):
        out, figures = _timed(lambda: layer(images))
        row["forward"].append(figures)
        grad = torch.ones_like(out)
        _, figures = _timed(lambda out=out, grad=grad: torch.autograd.backward(out, grad))
        row["backward"].append(figures)
        layer.zero_grad()
        images.grad = None
    return row


def _timed(call: Any) -> tuple[Any, tuple[float, int]]:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    begin = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return result, (time.perf_counter() - begin, torch.cuda.max_memory_allocated() - before)


def _compare(rows: list[dict[str, Any]], real: list[dict[str, Any]]) -> None:
    for way in ("forward", "backward"):
        pairs = [(row[way], true[way]) for row, true in zip(rows, real, strict=False)]
        extra = [(mine[0][0] - mine[1][0], true[0][0] - true[1][0]) for mine, true in pairs]
        peaks = [mine[0][1] / true[0][1] for mine, true in pairs if max(mine[0][1], true[0][1]) > _LEAST]
        print(
            f"{way}: first calls take {sum(mine for mine, _ in extra):.1f} s longer in all, "
            f"{sum(true for _, true in extra):.1f} s on the real GPU"
        )
        within = ", ".join(f"{sum(1 / most < each < most for each in peaks)} within {most:g}" for most in _WITHIN)
        print(f"{way}: peaks of {len(peaks)} first calls: {within}; median {statistics.median(peaks):.2f}")


if __name__ == "__main__":
    sys.exit(main())
