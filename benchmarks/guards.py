"""What `unstall.no_sync` and `unstall.allow_sync` cost a hot loop that does not wait. On a GPU.

    python -m benchmarks.guards [--out FILE]

The loop is bound by launches: 5 forward passes of a small transformer, for a batch of 1, of 1 to 2 ms each. A guard is
around the loop ("loop"), or entered and left in each pass ("pass"); or waits are allowed once in each pass, within a
guard around the loop ("allowed"). `unstall.compare` runs the ways in turns. For each there is the ratio of its time to
that without a guard, as a 95 % interval; "again" is the loop without a guard once more, and shows how far chance goes.
A smaller effect is measured by itself: `guard_us` and `allow_us` are what an empty block costs, and `pass_us` a pass,
as medians. `install_ms` is what the first guard of a process costs, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.on_device import tell

if TYPE_CHECKING:
    import torch

_PASSES, _LAYERS, _WIDTH, _TOKENS = 5, 12, 256, 16
_SECONDS = 100.0


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
    ratios = {each.name: [round(each.ratio.low, 4), round(each.ratio.high, 4)] for each in compared.candidates}
    return {"install_ms": round(install_ms, 1), **_parts(model, inputs), "ratios": ratios}


def _parts(model: torch.nn.Sequential, inputs: torch.Tensor) -> dict[str, float]:
    """Returns the median times of single calls, each right after a forward pass, so that the caches
    are as they are in a loop.
    """
    import torch

    import unstall

    def guard() -> None:
        with unstall.no_sync():
            pass

    def allow() -> None:
        with unstall.allow_sync("to see what it costs"):
            pass

    taken: dict[str, list[int]] = {"pass_us": [], "guard_us": [], "allow_us": []}
    with torch.no_grad(), unstall.no_sync():
        for _ in range(1000):
            for name, call in (("pass_us", lambda: model(inputs)), ("guard_us", guard), ("allow_us", allow)):
                start = time.perf_counter_ns()
                call()
                taken[name].append(time.perf_counter_ns() - start)
    return {name: round(median(each) / 1e3, 2) for name, each in taken.items()}


def _ways(model: torch.nn.Sequential) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    import unstall

    def plain(inputs: torch.Tensor) -> torch.Tensor:
        outputs = inputs
        for _ in range(_PASSES):
            outputs = model(inputs)
        return outputs

    def again(inputs: torch.Tensor) -> torch.Tensor:
        return plain(inputs)

    def guarded_loop(inputs: torch.Tensor) -> torch.Tensor:
        with unstall.no_sync():
            return plain(inputs)

    def guarded_pass(inputs: torch.Tensor) -> torch.Tensor:
        outputs = inputs
        for _ in range(_PASSES):
            with unstall.no_sync():
                outputs = model(inputs)
        return outputs

    def allowed(inputs: torch.Tensor) -> torch.Tensor:
        outputs = inputs
        with unstall.no_sync():
            for _ in range(_PASSES):
                with unstall.allow_sync("to see what it costs"):
                    outputs = model(inputs)
        return outputs

    return {"plain": plain, "again": again, "loop": guarded_loop, "pass": guarded_pass, "allowed": allowed}


if __name__ == "__main__":
    main()
