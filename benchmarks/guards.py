"""What `unstall.no_sync` and `unstall.allow_sync` cost a hot loop that does not wait. On a GPU.

    python -m benchmarks.guards [--out FILE]

The loop is bound by launches: the forward pass of a small transformer, for a batch of 1. In each call of it a guard is
entered and left; in another way waits are allowed in each layer, too. `unstall.compare` runs the ways in turns. For
each way there is the ratio of its time to that without a guard, as a 95 % interval; "again" is the loop without a guard
once more, and shows how far chance goes. `install_ms` is what the first guard of a process costs, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.on_device import tell

if TYPE_CHECKING:
    import torch

_LAYERS, _WIDTH, _TOKENS = 12, 256, 16
_SECONDS = 60.0


def main() -> None:
    tell(__doc__, _figures)


def _figures() -> dict[str, object]:
    import torch

    import unstall

    layers = [torch.nn.TransformerEncoderLayer(_WIDTH, 4, 4 * _WIDTH, batch_first=True) for _ in range(_LAYERS)]
    model = torch.nn.Sequential(*layers).cuda().eval()
    inputs = torch.randn(1, _TOKENS, _WIDTH, device="cuda")
    with torch.no_grad():
        model(inputs)
        start = time.perf_counter()
        with unstall.no_sync():
            pass
        install_ms = (time.perf_counter() - start) * 1e3
        ways = _ways(model)
        compared = unstall.compare(ways, inputs, by="throughput", same_within=0.005, max_seconds=_SECONDS)
    ratios = {each.name: [each.ratio.low, each.ratio.high] for each in compared.candidates}
    return {"install_ms": round(install_ms, 1), "ratios": ratios}


def _ways(model: torch.nn.Sequential) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    import unstall

    def plain(inputs: torch.Tensor) -> torch.Tensor:
        for layer in model:
            inputs = layer(inputs)
        return inputs

    def again(inputs: torch.Tensor) -> torch.Tensor:
        return plain(inputs)

    def guarded(inputs: torch.Tensor) -> torch.Tensor:
        with unstall.no_sync():
            return plain(inputs)

    def allowed(inputs: torch.Tensor) -> torch.Tensor:
        with unstall.no_sync():
            for layer in model:
                with unstall.allow_sync("to see what it costs"):
                    inputs = layer(inputs)
            return inputs

    return {"plain": plain, "again": again, "guarded": guarded, "allowed": allowed}


if __name__ == "__main__":
    main()
