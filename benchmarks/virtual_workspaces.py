"""The memory that trainings of convolutions with growing batches reserve: on a real GPU, and on a virtual one.

python -m benchmarks.virtual_workspaces --out real.json                                     # on a GPU
python -m unstall.virtual --gpu h100 -m benchmarks.virtual_workspaces --against real.json   # anywhere
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.on_device import comparing, measured_on, why_skipped

_LIMIT = 0.10
_MIB = 1 << 20
NETS: dict[str, tuple[list[tuple[int, int, int, int]], int, torch.dtype]] = {
    # (channels in, channels out, kernel, stride) of each convolution, edge of the images, type
    "64 channels": ([(3, 64, 3, 1), (64, 64, 3, 1), (64, 64, 3, 1)], 96, torch.float32),
    "pyramid": ([(3, 32, 3, 1), (32, 64, 3, 2), (64, 128, 3, 2), (128, 128, 3, 1)], 128, torch.float32),
    "5 x 5": ([(3, 48, 5, 2), (48, 96, 5, 2), (96, 96, 5, 1)], 160, torch.float32),
    "bfloat16": ([(3, 64, 3, 1), (64, 64, 3, 1), (64, 128, 3, 2)], 96, torch.bfloat16),
    "1 x 1": ([(3, 64, 7, 2), (64, 256, 1, 1), (256, 64, 1, 1), (64, 64, 3, 1)], 128, torch.float32),
}
BATCHES = (8, 16, 24, 32, 48, 64)


def main(argv: list[str] | None = None) -> int:
    parser = comparing(__doc__)
    parser.add_argument("--sizes", action="store_true", help="with --out: also the sizes of all blocks")
    args = parser.parse_args(argv)
    if skipped := why_skipped():
        print(skipped)
        return 0
    real = json.loads(args.against.read_text())["nets"] if args.against else {}
    found = {name: list(_training(name, sizes=args.sizes)) for name in NETS}
    within = 0
    for name, rows in found.items():
        for at, row in enumerate(rows):
            line = f"{name:12} {row['batch']:4} {row['reserved'] / _MIB:8.0f} MiB reserved,"
            line += f" {row['peak'] / _MIB:6.0f} at most"
            if real:
                its = real[name][at]
                ratios = [row[key] / its[key] for key in ("reserved", "peak")]
                within += abs(ratios[0] - 1) <= _LIMIT
                line += f"   real: {its['reserved'] / _MIB:8.0f} {its['peak'] / _MIB:8.0f}"
                line += f"   {ratios[0]:.2f} {ratios[1]:.2f}"
            print(line)
    if real:
        print(f"{within} of {sum(map(len, found.values()))} within {_LIMIT:.0%}")
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"nets": found}) + "\n")
    return 0


def _training(name: str, *, sizes: bool) -> Iterator[dict[str, Any]]:
    convolutions, edge, dtype = NETS[name]
    gc.collect()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    layers = [nn.Conv2d(*each, padding=each[2] // 2) for each in convolutions]
    model = nn.Sequential(*[layer for each in layers for layer in (each, nn.ReLU())]).to("cuda", dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for batch in BATCHES:
        torch.cuda.reset_peak_memory_stats()
        images = torch.randn(batch, 3, edge, edge, device="cuda", dtype=dtype)
        if sizes:
            torch.cuda.memory._record_memory_history(context=None)
        for _ in range(2):
            functional.mse_loss(model(images), torch.zeros((), device="cuda", dtype=dtype)).backward()
            optimizer.step()
            optimizer.zero_grad()
        row: dict[str, Any] = {
            "batch": batch,
            "reserved": torch.cuda.memory_reserved(),
            "peak": torch.cuda.max_memory_allocated(),
        }
        if sizes:
            events = torch.cuda.memory._snapshot()["device_traces"][0]
            row["blocks"] = [(each["action"], each["size"]) for each in events if each["size"] >= 1 << 16]
            torch.cuda.memory._record_memory_history(None)
        yield row


if __name__ == "__main__":
    sys.exit(main())
