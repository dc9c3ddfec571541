"""How long the host takes for calls of torch in a loop, over `x.add_(1.0)`: on a real GPU, and on a virtual one.

    python -m benchmarks.host_calls --out real.json                                                     # on a GPU
    python -m unstall.virtual --gpu h200 --numerics skip -m benchmarks.host_calls --against real.json   # anywhere

Each call is repeated without waits on tensors so small that the device is never what takes the time. Hosts change their
pace from second to second, so figures are over the time of `add_` in the same process.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from benchmarks.on_device import comparing, host_ns, measured_on, why_skipped

_CALLS, _ROUNDS = 100, 7
Call = Callable[[], object]


def main(argv: list[str] | None = None) -> int:
    args = comparing(__doc__).parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    real = json.loads(args.against.read_text())["over_add"] if args.against else {}
    found: dict[str, float] = {}
    plain = torch.zeros(1, 256, device="cuda")
    own = _ns(lambda: plain.add_(1.0))
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            for name, call in _calls(gradients).items():
                label = f"{name}{', recorded' if gradients else ''}"
                found[label] = round(_ns(call) / own, 3)
                beside = f"   real: {real[label]:6.2f}   {found[label] / real[label]:.2f}" if label in real else ""
                print(f"{label:28} {found[label]:6.2f}{beside}", flush=True)
    if real:
        ratios = [found[name] / real[name] for name in found if name in real]
        near = [sum(1 / limit <= each <= limit for each in ratios) for limit in (1.35, 2.0)]
        print(f"median {statistics.median(ratios):.2f}; {near[0]} within 35 %, {near[1]} within 2, of {len(ratios)}")
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"over_add": found}, indent=1) + "\n")
    return 0


def _ns(call: Call) -> float:
    return host_ns([call], times=_CALLS, rounds=_ROUNDS, warm_up=20)


def _calls(gradients: bool) -> dict[str, Call]:
    def tensor(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device="cuda", requires_grad=gradients)

    weight, bias, scale, shift = tensor(256, 256), tensor(256), tensor(256), tensor(256)
    x, deep = tensor(1, 256), tensor(2, 4, 256)
    module, turned = nn.Linear(256, 256).cuda(), weight.t()
    indices = torch.zeros(4, dtype=torch.long, device="cuda")
    return {
        "linear": lambda: functional.linear(x, weight),
        "linear, bias": lambda: functional.linear(x, weight, bias),
        "linear, 3 dimensions": lambda: functional.linear(deep, weight, bias),
        "nn.Linear": lambda: module(x),
        "mm": lambda: torch.mm(x, turned),
        "addmm": lambda: torch.addmm(bias, x, turned),
        "matmul, 3 dimensions": lambda: torch.matmul(deep, turned),
        "t": weight.t,
        "transpose": lambda: weight.transpose(0, 1),
        "view": lambda: deep.view(8, 256),
        "reshape": lambda: deep.reshape(8, 256),
        "expand": lambda: bias.expand(8, 256),
        "permute": lambda: deep.permute(1, 0, 2),
        "unsqueeze": lambda: bias.unsqueeze(0),
        "flatten": lambda: deep.flatten(0, 1),
        "select": lambda: deep[0],
        "slice": lambda: deep[:, 1:],
        "chunk": lambda: deep.chunk(2, 2),
        "split": lambda: deep.split(128, 2),
        "unbind": lambda: deep.unbind(0),
        "detach": x.detach,
        "add": lambda: x + bias,
        "relu": lambda: torch.relu(x),
        "gelu": lambda: functional.gelu(x),
        "square": x.square,
        "pow": lambda: x**2,
        "sum": x.sum,
        "mean": x.mean,
        "softmax": lambda: functional.softmax(x, -1),
        "layer_norm": lambda: functional.layer_norm(x, (256,), scale, shift),
        "dropout": lambda: functional.dropout(x, 0.1, True),
        "to half": x.half,
        "zeros": lambda: torch.zeros(4, device="cuda"),
        "zeros_like": lambda: torch.zeros_like(x),
        "cat": lambda: torch.cat([x, x]),
        "stack": lambda: torch.stack([x, x]),
        "embedding": lambda: functional.embedding(indices, weight),
        "bmm": lambda: torch.bmm(deep, deep.transpose(1, 2)),
        "attention": lambda: functional.scaled_dot_product_attention(deep[None], deep[None], deep[None]),
    }


if __name__ == "__main__":
    sys.exit(main())
