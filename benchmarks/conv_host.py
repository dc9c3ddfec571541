"""How long the host takes for convolutions of few elements: on a real GPU, and on a virtual one.

python -m benchmarks.conv_host --out real.json                                     # on a GPU
python -m unstall.virtual --gpu h200 -m benchmarks.conv_host --against real.json   # anywhere

Each call is repeated without waits, so that the device is never what takes the time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch.nn import functional

from benchmarks.on_device import comparing, measured_on, why_skipped

_CALLS, _ROUNDS = 60, 7
_CONVOLVE: tuple[Callable[..., torch.Tensor], ...] = (functional.conv1d, functional.conv2d, functional.conv3d)
SHAPES = {  # of the input, and of the weight
    "2d": ((4, 16, 12, 12), (16, 16, 3, 3)),
    "1x1": ((4, 16, 12, 12), (16, 16, 1, 1)),
    "depthwise": ((4, 16, 12, 12), (16, 1, 3, 3)),
    "5x5": ((4, 3, 16, 16), (8, 3, 5, 5)),
    "1d": ((4, 16, 50), (16, 16, 3)),
    "3d": ((2, 8, 6, 6, 6), (8, 8, 3, 3, 3)),
    "big": ((16, 64, 28, 28), (64, 64, 3, 3)),
}
_GRADIENTS = ([True, False, False], [False, True, False], [True, True, False], [True, True, True])


def main(argv: list[str] | None = None) -> int:
    args = comparing(__doc__).parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    real = json.loads(args.against.read_text())["us"] if args.against else {}
    found = {}
    for name, call in _calls():
        found[name] = round(_us(call), 2)
        beside = f"   real: {real[name]:7.2f}   {found[name] / real[name]:.2f}" if name in real else ""
        print(f"{name:48} {found[name]:7.2f} us{beside}", flush=True)
    if real:
        ratios = [found[name] / real[name] for name in found if name in real]
        print(
            f"median {statistics.median(ratios):.2f}; {sum(0.65 <= each <= 1.35 for each in ratios)} of {len(ratios)}"
        )
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"us": found}, indent=1) + "\n")
    return 0


def _us(call: Callable[[], object]) -> float:
    rounds = []
    for _ in range(_ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(_CALLS):
            call()
        rounds.append((time.perf_counter() - begin) / _CALLS * 1e6)
    return statistics.median(rounds)


@torch.no_grad()
def _calls() -> Iterator[tuple[str, Callable[[], object]]]:
    backward = torch.ops.aten.convolution_backward
    for dtype in (torch.float32, torch.bfloat16):
        for shape, (sizes, of_weight) in SHAPES.items():
            x, weight, bias = (
                torch.randn(each, device="cuda", dtype=dtype) for each in (sizes, of_weight, of_weight[:1])
            )
            rank, groups = len(sizes) - 2, sizes[1] // of_weight[1]
            ones, padding = [1] * rank, [of_weight[-1] // 2] * rank
            convolve = _CONVOLVE[rank - 1]
            gradient = convolve(x, weight, None, 1, padding, 1, groups)
            label = f"{str(dtype).removeprefix('torch.')} {shape}"
            yield f"{label} conv", lambda: convolve(x, weight, None, 1, padding, 1, groups)  # noqa: B023 — called at once
            yield f"{label} conv bias", lambda: convolve(x, weight, bias, 1, padding, 1, groups)  # noqa: B023
            for mask in _GRADIENTS:
                how = [of_weight[0]], ones, padding, ones, False, [0] * rank, groups, mask
                yield f"{label} backward {mask}", lambda: backward(gradient, x, weight, *how)  # noqa: B023


if __name__ == "__main__":
    sys.exit(main())
