"""The memory that trainings of convolutions with growing batches reserve: on a real GPU, and on a virtual one.

python -m benchmarks.virtual_workspaces --out real.json                                     # on a GPU
python -m unstall.virtual --gpu h100 -m benchmarks.virtual_workspaces --against real.json   # anywhere
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.on_device import comparing, measured_on, why_skipped

_LIMIT = 0.10
_MIB = 1 << 20
_Padded = tuple[list[tuple[int, int, int, int]], int, torch.dtype]
PADDED: dict[str, _Padded] = {
    # (channels in, channels out, kernel, stride) of each convolution, edge of the images, type
    "64 channels": ([(3, 64, 3, 1), (64, 64, 3, 1), (64, 64, 3, 1)], 96, torch.float32),
    "pyramid": ([(3, 32, 3, 1), (32, 64, 3, 2), (64, 128, 3, 2), (128, 128, 3, 1)], 128, torch.float32),
    "5 x 5": ([(3, 48, 5, 2), (48, 96, 5, 2), (96, 96, 5, 1)], 160, torch.float32),
    "bfloat16": ([(3, 64, 3, 1), (64, 64, 3, 1), (64, 128, 3, 2)], 96, torch.bfloat16),
    "1 x 1": ([(3, 64, 7, 2), (64, 256, 1, 1), (256, 64, 1, 1), (64, 64, 3, 1)], 128, torch.float32),
}


@dataclass(frozen=True)
class Net:
    """A net of convolutions.

    Attributes:
        layers: Returns its layers.
        shape: The channels and the sides of one input.
        dtype: The type of its weights.
    """

    layers: Callable[[], list[nn.Module]]
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32


def _padded(convolutions: list[tuple[int, int, int, int]]) -> Callable[[], list[nn.Module]]:
    """Returns a function that makes convolutions, given by channels, filters, kernel and stride, with a ReLU each."""
    return lambda: _with(nn.ReLU, [nn.Conv2d(*each, padding=each[2] // 2) for each in convolutions])


def _with(activation: Callable[[], nn.Module], layers: Iterable[nn.Module]) -> list[nn.Module]:
    return [part for layer in layers for part in (layer, activation())]


def _digits() -> list[nn.Module]:
    pool = nn.MaxPool2d(2)
    return [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), pool, nn.Conv2d(64, 128, 5), nn.ReLU()]


def _vgg() -> list[nn.Module]:
    widths = (3, 64, 64, 0, 128, 128, 0, 256, 256, 0)
    layers: list[nn.Module] = []
    before = widths[0]
    for width in widths[1:]:
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()] if width else [nn.MaxPool2d(2)]
        before = width or before
    return layers


def _discriminator() -> list[nn.Module]:
    widths = (3, 64, 128, 256, 512)
    return _with(lambda: nn.LeakyReLU(0.2), (nn.Conv2d(i, o, 4, 2, 1, bias=False) for i, o in pairwise(widths)))


def _generator() -> list[nn.Module]:
    widths = (256, 128, 64, 32, 3)
    return _with(nn.ReLU, (nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False) for i, o in pairwise(widths)))


def _sound() -> list[nn.Module]:
    sizes = ((1, 32, 80, 4), (32, 64, 9, 2), (64, 128, 9, 2), (128, 128, 3, 1))
    return _with(nn.ReLU, (nn.Conv1d(i, o, kernel, stride) for i, o, kernel, stride in sizes))


def _dilated() -> list[nn.Module]:
    return _with(nn.ReLU, (nn.Conv1d(64, 64, 3, padding=2**at, dilation=2**at) for at in range(5)))


def _film() -> list[nn.Module]:
    return _with(
        nn.ReLU, (nn.Conv3d(i, o, 3, padding=1, stride=s) for i, o, s in ((3, 32, 1), (32, 64, 2), (64, 64, 1)))
    )


def _depthwise() -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.ReLU()]
    for i, o in ((32, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(i, i, 3, 1, 1, groups=i, bias=False), nn.ReLU(), nn.Conv2d(i, o, 1, bias=False), nn.ReLU()]
    return layers


class _Joined(nn.Module):
    """Branches on the same input. Their outputs are added, or joined along the channels."""

    def __init__(self, *branches: nn.Module, added: bool = False) -> None:
        super().__init__()
        self.branches, self.added = nn.ModuleList(branches), added

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [branch(x) for branch in self.branches]
        return torch.stack(found).sum(0) if self.added else torch.cat(found, 1)


def _normed(i: int, o: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o)]


def _residual() -> list[nn.Module]:
    layers = [*_normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for i, o, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        main = nn.Sequential(*_normed(i, o, 3, stride), nn.ReLU(), *_normed(o, o, 3))
        layers += [_Joined(main, nn.Sequential(*_normed(i, o, 1, stride)), added=True), nn.ReLU()]
    return layers


def _u_net() -> list[nn.Module]:
    inner: list[nn.Module] = []
    for width in (192, 96, 48):
        down = [nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU()]
        up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        after = [nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU()]
        inner = [_Joined(nn.Identity(), nn.Sequential(*down, *inner, up)), *after]
    return [nn.Conv2d(3, 48, 3, padding=1), nn.ReLU(), *inner, nn.Conv2d(48, 2, 1)]


def _inception() -> list[nn.Module]:
    def mixed(i: int, o: int) -> nn.Module:
        def narrow(kernel: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, 1), nn.ReLU(), nn.Conv2d(o, o, kernel, padding=kernel // 2))

        return _Joined(nn.Conv2d(i, o, 1), narrow(3), narrow(5))

    first, pool = nn.Conv2d(3, 48, 3, 2, 1), nn.MaxPool2d(2)
    return [first, nn.ReLU(), mixed(48, 32), nn.ReLU(), pool, mixed(96, 64), nn.ReLU(), mixed(192, 64), nn.ReLU()]


def _autoencoder() -> list[nn.Module]:
    widths = (3, 32, 64, 128)
    down = (nn.Conv2d(i, o, 3, 2, 1) for i, o in pairwise(widths))
    up = (nn.ConvTranspose2d(i, o, 3, 2, 1, 1) for i, o in pairwise(reversed(widths)))
    return _with(nn.GELU, (*down, *up))


def _sharper() -> list[nn.Module]:
    sizes = ((3, 64, 5), (64, 64, 3), (64, 32, 3), (32, 12, 3))
    return [
        *_with(nn.Tanh, (nn.Conv2d(i, o, kernel, padding=kernel // 2) for i, o, kernel in sizes)),
        nn.PixelShuffle(2),
    ]


def _speech() -> list[nn.Module]:
    sizes = ((80, 256, 3, 1), (256, 256, 3, 2), (256, 256, 5, 1), (256, 128, 1, 1))
    return _with(nn.GELU, (nn.Conv1d(i, o, kernel, stride, kernel // 2) for i, o, kernel, stride in sizes))


NETS = {
    **{name: Net(_padded(net), (3, edge, edge), dtype) for name, (net, edge, dtype) in PADDED.items()},
    "digits": Net(_digits, (1, 28, 28)),
    "vgg": Net(_vgg, (3, 64, 64)),
    "discriminator": Net(_discriminator, (3, 64, 64)),
    "generator": Net(_generator, (256, 4, 4)),
    "sound": Net(_sound, (1, 16_000)),
    "dilated": Net(_dilated, (64, 1_000)),
    "film": Net(_film, (3, 16, 56, 56)),
    "depthwise": Net(_depthwise, (3, 112, 112)),
    "float16": Net(_vgg, (3, 64, 64), torch.float16),
    "residual": Net(_residual, (3, 112, 112)),
    "u-net": Net(_u_net, (3, 96, 96)),
    "inception": Net(_inception, (3, 80, 80)),
    "autoencoder": Net(_autoencoder, (3, 64, 64), torch.float16),
    "sharper": Net(_sharper, (3, 72, 72)),
    "speech": Net(_speech, (80, 1_000), torch.bfloat16),
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
            line = f"{name:13} {row['batch']:4} {row['reserved'] / _MIB:8.0f} MiB reserved,"
            line += f" {row['peak'] / _MIB:6.0f} at most"
            if name in real:
                its = real[name][at]
                ratios = [row[key] / its[key] for key in ("reserved", "peak")]
                within += abs(ratios[0] - 1) <= _LIMIT
                line += f"   real: {its['reserved'] / _MIB:8.0f} {its['peak'] / _MIB:8.0f}"
                line += f"   {ratios[0]:.2f} {ratios[1]:.2f}"
            print(line)
    if real:
        print(f"{within} of {sum(len(found[name]) for name in real)} within {_LIMIT:.0%}")
    if args.out:
        args.out.write_text(json.dumps(measured_on() | {"nets": found}) + "\n")
    return 0


def _training(name: str, *, sizes: bool) -> Iterator[dict[str, Any]]:
    net = NETS[name]
    gc.collect()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    model = nn.Sequential(*net.layers()).to("cuda", net.dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for batch in BATCHES:
        torch.cuda.reset_peak_memory_stats()
        images = torch.randn(batch, *net.shape, device="cuda", dtype=net.dtype)
        if sizes:
            torch.cuda.memory._record_memory_history(context=None)
        for _ in range(2):
            functional.mse_loss(model(images), torch.zeros((), device="cuda", dtype=net.dtype)).backward()
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
