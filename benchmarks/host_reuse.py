"""How much longer a call of torch takes the host if others ran since its last: on a real GPU, and on a virtual one.

    python -m benchmarks.host_reuse --out real.json                                                     # on a GPU
    python -m unstall.virtual --gpu h200 --numerics skip -m benchmarks.host_reuse --against real.json   # anywhere

Rounds of so many different calls, chosen at random, beside the sum of what each takes in a loop of its own. No call
waits, and the device is never what takes the time. Three processes on an H200 are host_reuse_h200.json.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.on_device import comparing, host_ns, machines, measured_on, why_skipped

_CALLS, _ROUNDS, _CHOICES = 96, 7, 8
_SIZES = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48)
Call = Callable[[], object]


def main(argv: list[str] | None = None) -> int:
    args = comparing(__doc__).parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    real = machines(args.against)
    found: dict[str, dict[str, Any]] = {}
    with torch.no_grad():
        for kind, calls in {"operators": _operators(), "views": _views(), "modules": _modules()}.items():
            alone = {name: _ns([call]) for name, call in calls.items()}
            rounds = [
                {"names": names, "ns": round(_ns([calls[name] for name in names]))} for names in _rounds(kind, calls)
            ]
            found[kind] = {"alone_ns": {name: round(ns) for name, ns in alone.items()}, "rounds": rounds}
            _tell(kind, found[kind], [of[kind] for of in real])
    if args.out:
        args.out.write_text(json.dumps(measured_on() | found) + "\n")
    return 0


def _rounds(kind: str, calls: Iterable[str]) -> list[list[str]]:
    names = sorted(calls)
    return [
        random.Random(f"{kind} {size} {nth}").sample(names, size)
        for size in _SIZES
        if size <= len(names)
        for nth in range(_CHOICES)
    ]


def _tell(kind: str, found: dict[str, Any], real: list[dict[str, Any]]) -> None:
    """Prints how long a call takes alone and in rounds of each size, in us: here, and on the real machines."""

    def us(of: dict[str, Any], size: int) -> float:
        rounds = [float(each["ns"]) / size for each in of["rounds"] if len(each["names"]) == size]
        return statistics.median(rounds or map(float, of["alone_ns"].values())) / 1e3

    for size in (1, *sorted({len(each["names"]) for each in found["rounds"]})):
        beside = "  ".join(f"{us(of, size):6.2f}" for of in real)
        print(f"{kind:10} {size:3} different: {us(found, size):6.2f} us a call" + f"   real: {beside}" * bool(real))


def _ns(calls: Sequence[Call]) -> float:
    return host_ns(calls, times=max(3, _CALLS // len(calls)), rounds=_ROUNDS, warm_up=3)


def _operators() -> dict[str, Call]:
    x, y = torch.rand(1, 256, device="cuda") + 0.1, torch.rand(1, 256, device="cuda") + 0.1
    square, deep = torch.rand(64, 64, device="cuda"), torch.rand(2, 8, 64, device="cuda")
    images, table = torch.rand(1, 4, 8, 8, device="cuda"), torch.rand(32, 64, device="cuda")
    indices, mask = torch.zeros(4, dtype=torch.long, device="cuda"), torch.rand(1, 256, device="cuda") > 0.5
    column, filters = torch.zeros(1, 4, dtype=torch.long, device="cuda"), torch.rand(4, 4, 3, 3, device="cuda")
    scale = torch.rand(64, device="cuda")
    simple = ("exp", "log", "sin", "cos", "tanh", "sigmoid", "relu", "abs", "neg", "sqrt", "rsqrt", "floor", "erf")
    two = ("add", "mul", "sub", "div", "maximum", "minimum", "eq", "lt", "atan2", "fmod")
    return {
        **{name: partial(getattr(torch, name), x) for name in simple},
        **{name: partial(getattr(torch, name), x, y) for name in two},
        **{name: partial(getattr(torch, name), x, -1) for name in ("sum", "mean", "amax", "argmax", "cumsum")},
        "softmax": lambda: torch.softmax(x, -1),
        "log_softmax": lambda: torch.log_softmax(x, -1),
        "layer_norm": lambda: functional.layer_norm(table, (64,), scale, scale),
        "gelu": lambda: functional.gelu(x),
        "silu": lambda: functional.silu(x),
        "clamp": lambda: torch.clamp(x, 0.2, 0.8),
        "pow": lambda: x**3,
        "add_": lambda: x.add_(1e-9),
        "where": lambda: torch.where(mask, x, y),
        "masked_fill": lambda: x.masked_fill(mask, 0.0),
        "mm": lambda: torch.mm(square, square),
        "addmm": lambda: torch.addmm(scale, square, square),
        "bmm": lambda: torch.bmm(deep, deep.mT),
        "cat": lambda: torch.cat([x, y]),
        "stack": lambda: torch.stack([x, y]),
        "embedding": lambda: functional.embedding(indices, table),
        "index_select": lambda: torch.index_select(table, 0, indices),
        "gather": lambda: torch.gather(table, 1, column),
        "zeros": lambda: torch.zeros(8, device="cuda"),
        "full": lambda: torch.full((8,), 2.0, device="cuda"),
        "arange": lambda: torch.arange(8, device="cuda"),
        "rand": lambda: torch.rand(8, device="cuda"),
        "half": x.half,
        "clone": x.clone,
        "pad": lambda: functional.pad(table, (1, 1)),
        "max_pool2d": lambda: functional.max_pool2d(images, 2),
        "avg_pool2d": lambda: functional.avg_pool2d(images, 2),
        "interpolate": lambda: functional.interpolate(images, scale_factor=2.0),
        "conv2d": lambda: functional.conv2d(images, filters, padding=1),
        "tril": square.tril,
        "flip": lambda: table.flip(0),
        "norm": lambda: torch.linalg.vector_norm(x),
        "dropout": lambda: functional.dropout(x, 0.1, True),
    }


def _views() -> dict[str, Call]:
    x, row = torch.rand(4, 8, 16, device="cuda"), torch.rand(16, device="cuda")
    return {
        "view": lambda: x.view(32, 16),
        "reshape": lambda: x.reshape(4, 128),
        "permute": lambda: x.permute(2, 0, 1),
        "transpose": lambda: x.transpose(0, 1),
        "unsqueeze": lambda: x.unsqueeze(0),
        "expand": lambda: row.expand(8, 16),
        "flatten": x.flatten,
        "select": lambda: x[1],
        "slice": lambda: x[:, 1:],
        "narrow": lambda: x.narrow(0, 1, 2),
        "detach": x.detach,
        "split": lambda: x.split(4, 1),
        "unbind": x.unbind,
        "squeeze": x.squeeze,
        "mT": lambda: x.mT,
        "diagonal": lambda: x.diagonal(0, 1, 2),
    }


def _modules() -> dict[str, Call]:
    """Returns calls of modules: some have the same class, and modules of their own."""
    x, images = torch.rand(4, 64, device="cuda"), torch.rand(1, 4, 8, 8, device="cuda")
    state = torch.zeros(4, 64, device="cuda")
    tokens, deep = torch.zeros(1, 4, dtype=torch.long, device="cuda"), torch.rand(1, 4, 64, device="cuda")
    cell, gates = nn.LSTMCell(64, 64).cuda(), nn.GRUCell(64, 64).cuda()
    attention = nn.MultiheadAttention(64, 2, batch_first=True).cuda().eval()
    layer = nn.TransformerEncoderLayer(64, 2, 128, batch_first=True).cuda()
    of_rows = [nn.Linear(64, 64) for _ in range(16)] + [nn.LayerNorm(64) for _ in range(6)] + [nn.ReLU(), nn.GELU()]
    of_images = [nn.Conv2d(4, 4, 3, padding=1) for _ in range(6)] + [nn.BatchNorm2d(4).eval() for _ in range(6)]
    return {
        **{f"{type(of).__name__} {at}": partial(of.cuda(), x) for at, of in enumerate(of_rows)},
        **{f"{type(of).__name__} {at}": partial(of.cuda(), images) for at, of in enumerate(of_images)},
        "Embedding": partial(nn.Embedding(8, 64).cuda(), tokens),
        "Dropout": partial(nn.Dropout(0.1), x),
        "Softmax": partial(nn.Softmax(-1), x),
        "MaxPool2d": partial(nn.MaxPool2d(2), images),
        "LSTMCell": lambda: cell(x, (state, state)),
        "GRUCell": lambda: gates(x, state),
        "MultiheadAttention": lambda: attention(deep, deep, deep),
        "TransformerEncoderLayer": lambda: layer(deep),
    }


if __name__ == "__main__":
    sys.exit(main())
